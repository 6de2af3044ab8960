"""Which pictures a report has, and how a figure becomes SVG or PNG."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from matplotlib import rc_context
from matplotlib.figure import Figure

from loadtest.report.charts import draw_histograms, draw_load, draw_tenants, draw_timeline
from loadtest.report.style import STYLE
from loadtest.result import Result

PNG_DPI = 130


@dataclass(frozen=True, slots=True)
class Picture:
    """A figure; `run` is (result, run) that it shows, None for one about all."""

    name: str
    figure: Figure
    run: tuple[int, int] | None = None

    def svg(self) -> str:
        """The picture as an element for a page; text is drawn as shapes, so that it looks the same everywhere."""
        file = io.StringIO()
        with rc_context(STYLE):
            self.figure.savefig(file, format="svg", metadata={"Date": None})
        return file.getvalue()[file.getvalue().index("<svg") :]

    def png(self) -> bytes:
        """The picture as a PNG file."""
        file = io.BytesIO()
        with rc_context(STYLE):
            self.figure.savefig(file, format="png", dpi=PNG_DPI, metadata={"Software": None})
        return file.getvalue()


def draw_pictures(results: Sequence[Result]) -> list[Picture]:
    """All of a report."""
    with rc_context(STYLE):
        return list(_draw(results))


def _draw(results: Sequence[Result]) -> Iterator[Picture]:
    if sum(len(result.runs) for result in results) > 1:
        yield Picture("latency-against-load", draw_load(results))
    for at, result in enumerate(results):
        for number, run in enumerate(result.runs):
            name = re.sub(r"[^a-z0-9]+", "-", f"{result.name} {run.load}".lower()).strip("-")
            yield Picture(f"{name}-timeline", draw_timeline(result, run), (at, number))
            yield Picture(f"{name}-histograms", draw_histograms(result, run), (at, number))
            if len(run.tenants) > 1:
                yield Picture(f"{name}-tenants", draw_tenants(result, run), (at, number))

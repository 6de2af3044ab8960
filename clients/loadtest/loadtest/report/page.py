"""The HTML page. One file: style and pictures are inside, there is no script."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from jinja2 import Environment, FileSystemLoader
from markupsafe import Markup

from loadtest.report.pictures import Picture
from loadtest.result import Result
from loadtest.tables import compare, describe, distributions, milliseconds, rate_line


def render_page(results: Sequence[Result], pictures: Sequence[Picture]) -> str:
    """The page's text."""
    loader = FileSystemLoader(Path(__file__).parent)
    page = Environment(loader=loader, autoescape=True, trim_blocks=True, lstrip_blocks=True).get_template("page.html.j2")
    drawn = {run: [picture for picture in pictures if picture.run == run] for run in {picture.run for picture in pictures}}
    return page.render(
        results=results,
        comparison=list(compare(results)) if len(results) > 1 else [],
        pictures=lambda *run: [Markup(picture.svg()) for picture in drawn.get(run or None, ())],
        distributions=distributions,
        describe=describe,
        milliseconds=milliseconds,
        rate_line=rate_line,
    )

"""A report: one HTML page that needs nothing else, and its pictures as PNG."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from loadtest.report.page import render_page
from loadtest.report.pictures import Picture, draw_pictures
from loadtest.result import Result

__all__ = ["write_report"]


def write_report(results: Sequence[Result], page: Path, pictures: Path | None = None) -> list[Path]:
    """Writes the page and, where a folder is given, the pictures; returns the files."""
    drawn = draw_pictures(results)
    page.write_text(render_page(results, drawn))
    return [page, *_write_pictures(drawn, pictures)]


def _write_pictures(drawn: Sequence[Picture], folder: Path | None) -> list[Path]:
    if folder is None:
        return []
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"{picture.name}.png" for picture in drawn]
    for picture, path in zip(drawn, paths, strict=True):
        path.write_bytes(picture.png())
    return paths

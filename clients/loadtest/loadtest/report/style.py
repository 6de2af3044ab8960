"""How pictures look. The colours are Okabe and Ito's, which people with any colour vision can tell apart; lines differ in dashes too."""

from __future__ import annotations

from itertools import cycle, islice
from typing import Any

BLUE = "#0072B2"
ORANGE = "#D55E00"
GREEN = "#009E73"
PINK = "#CC79A7"
YELLOW = "#E69F00"
SKY = "#56B4E9"
GREY = "#666666"

COLOURS = (BLUE, ORANGE, GREEN, PINK, YELLOW, SKY)
MARKERS = ("o", "s", "^", "D", "v", "P")

STYLE: Any = {
    "font.family": "DejaVu Sans",
    "font.size": 10,
    "axes.titlesize": 11,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#dddddd",
    "legend.frameon": False,
    "legend.fontsize": 9,
    "figure.constrained_layout.use": True,
    "svg.hashsalt": "tidegate",
}


def looks(count: int) -> list[tuple[str, str]]:
    """Colour and marker of each of `count` series."""
    return list(islice(zip(cycle(COLOURS), cycle(MARKERS), strict=False), count))

"""The table of cases, and what its words stand for."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

Case = dict[str, Any]


def load_cases() -> dict[str, Case]:
    """The cases by name, in order."""
    return {case["name"]: case for case in json.loads(Path(__file__).with_name("cases.json").read_text())}


def spell(text: Any) -> str:
    """A text of the table: a string, a piece with its number of `times`, or a list of both."""
    if isinstance(text, str):
        return text
    if isinstance(text, list):
        return "".join(map(spell, text))
    return str(text["text"]) * int(text["times"])

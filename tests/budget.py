"""How much hypothesis tries: what `tests/conftest.py` chose, or more or less where a property needs it."""

from __future__ import annotations

from hypothesis import settings


def examples(times: float) -> int:
    """`times` as many examples as other properties get."""
    return round(times * settings().max_examples)

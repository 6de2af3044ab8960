"""How guides are refused: with a place and a reason, and no text of the caller's but short plain names."""

from __future__ import annotations

import re

from server.engine.base import RequestRefused

_PLAIN = re.compile(r"[\w$.-]{1,32}", re.ASCII)
_PLACE_SHOWN = 160


def refuse(place: str, what: str) -> RequestRefused:
    """The error to raise. `place` is a JSON pointer, a position or a rule; a long one loses its beginning."""
    shown = place if len(place) <= _PLACE_SHOWN else "…" + place[-_PLACE_SHOWN:]
    return RequestRefused(f"guided_decoding_guide: {shown}: {what}")


def show_name(name: str) -> str:
    """The name, if it is short and plain; who wrote it will know "…" by its place."""
    return name if _PLAIN.fullmatch(name) else "…"

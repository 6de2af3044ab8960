"""Guided decoding: guides compiled to grammars."""

from __future__ import annotations

from server.engine.base import Guide, RequestRefused


def compile_guide(guide: Guide) -> str:
    """Being written."""
    raise RequestRefused("guided_decoding_guide: not served yet")

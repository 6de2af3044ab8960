"""Answers in token ids, for callers who have a tokenizer of their own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class TokenDelta(NamedTuple):
    """New ids; `log_probs` aligns with them and is None unless asked for."""

    tokens: Sequence[int]
    log_probs: Sequence[float] | None = None

"""How few tokens a text can have, which is known before it is encoded: a prompt that is hopelessly long costs nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

_SHRINKS = {"Prepend": 1, "Replace": 1, "NFC": 4, "NFD": 1}
"""How many characters a normalizer makes one of at most. NFC: a Greek letter and its three signs."""


class TooManyTokens(ValueError):
    """A text of more tokens than it may have; it has at least `tokens`."""

    def __init__(self, tokens: int) -> None:
        super().__init__(f"at least {tokens} tokens")
        self.tokens = tokens


def longest_token(tokenizer_json: Mapping[str, Any], token_bytes: Sequence[bytes]) -> int | None:
    """Most characters of a text that one token stands for; None where one may stand for any number, as for all that is not known."""
    normalizers = list(_list_normalizers(tokenizer_json.get("normalizer")))
    spells_all = len({it for it in token_bytes if len(it) == 1}) == 256
    if not spells_all or not all(it["type"] in _SHRINKS and _keeps_length(it) for it in normalizers):
        return None
    return max(map(len, token_bytes)) * max((_SHRINKS[it["type"]] for it in normalizers), default=1)


def _list_normalizers(given: Mapping[str, Any] | None) -> Iterator[Mapping[str, Any]]:
    if given is None:
        return
    yield from given["normalizers"] if given["type"] == "Sequence" else (given,)


def _keeps_length(normalizer: Mapping[str, Any]) -> bool:
    """Of those that replace, the one of SentencePiece alone is known to: a blank becomes "▁"."""
    if normalizer["type"] != "Replace":
        return True
    return normalizer["pattern"] == {"String": " "} and bool(normalizer["content"])

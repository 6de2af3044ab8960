"""Token ids to text while they arrive: whole characters only.

A token is a run of bytes, and a character may be cut over several tokens. The ids are looked up in a table of bytes and go through one
incremental UTF-8 decoder, so a half character waits for its rest, and bytes that are not UTF-8 become U+FFFD and end nothing.
"""

from __future__ import annotations

from codecs import utf_8_decode
from collections.abc import Sequence


class UnknownToken(ValueError):
    """A worker sent an id that the model's vocabulary does not have. What was fed together with it is not decoded."""


class Decoder:
    """The text of one answer. `pending` holds the bytes, at most three, of a character that is not whole yet.

    `lead` is the number of spaces that are dropped where the text begins: SentencePiece writes a word and the space before it as one
    token. The answer is a text of its own, so this is what Hugging Face's DecodeStream gives when it is not primed with the prompt.
    """

    __slots__ = ("_lead", "_table", "pending")

    def __init__(self, token_bytes: Sequence[bytes], *, lead: int = 0) -> None:
        self._table = token_bytes
        self._lead = lead
        self.pending = b""

    def feed(self, ids: Sequence[int]) -> str:
        """Text that is whole with these ids, maybe none. Raises UnknownToken."""
        try:
            data = b"".join([self._table[token] for token in ids])
        except IndexError:
            raise self._unknown() from None
        # A negative index would read the table from its end.
        if ids and min(ids) < 0:
            raise self._unknown()
        if self.pending:
            data = self.pending + data
        text, used = utf_8_decode(data, "replace", False)
        self.pending = data[used:]
        return self._drop_lead(text) if self._lead else text

    def bytes_of(self, token: int) -> bytes:
        """The bytes of one token, b"" for control tokens."""
        return self._table[token]

    def flush(self) -> str:
        """The end of the answer: U+FFFD for a character that was cut, else nothing."""
        text, _ = utf_8_decode(self.pending, "replace", True)
        self.pending = b""
        return text

    def _unknown(self) -> UnknownToken:
        return UnknownToken(f"the worker sent a token id outside the vocabulary of {len(self._table)} tokens")

    def _drop_lead(self, text: str) -> str:
        spaces = len(text) - len(text.lstrip(" "))
        dropped = min(spaces, self._lead)
        self._lead = self._lead - dropped if dropped == len(text) else 0
        return text[dropped:]

"""What a Hugging Face `tokenizer.json` says about its tokens: the bytes each one stands for, and which were added to the model's own.

Two ways of writing bytes as token text are known: the byte-level alphabet of GPT-2, and SentencePiece's "▁" with `<0x0A>` for single
bytes. Any other decoder is refused by name when the model is loaded, never guessed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any


class UnsupportedTokenizer(ValueError):
    """The tokenizer.json is not of a kind this router can take bytes and text apart with."""


@dataclass(frozen=True, slots=True)
class AddedToken:
    """A token that is matched as a whole before the model's own rules. `control` ones are structure and have no text."""

    id: int
    text: str
    control: bool

    @property
    def guarded(self) -> bool:
        """Whether callers may not write it. Runs of blanks and single characters that are not control tokens are mere spelling."""
        return self.control or not (len(self.text) == 1 or self.text.strip(" \t\r\n▁") == "")


def token_bytes_of(tokenizer_json: Mapping[str, Any]) -> list[bytes]:
    """Bytes by token id, b"" for control tokens and for ids that no token has. Raises UnsupportedTokenizer."""
    spelling, added_spelling = _spellings_of(tokenizer_json)
    table = {token: spelling(text) for text, token in pieces_of(tokenizer_json["model"])}
    table |= {it.id: b"" if it.control else added_spelling(it.text) for it in added_tokens_of(tokenizer_json)}
    return [table.get(token, b"") for token in range(max(table) + 1)]


def leading_spaces_of(tokenizer_json: Mapping[str, Any]) -> int:
    """How many spaces the decoder drops where a text begins. Raises UnsupportedTokenizer."""
    steps = _decoder_steps(tokenizer_json)
    return sum(int(step["start"]) for step in steps if step["type"] == "Strip")


def opening_ids_of(tokenizer_json: Mapping[str, Any]) -> list[int]:
    """The ids that the tokenizer puts before every text, as a beginning-of-text token."""
    last = tokenizer_json.get("post_processor") or {"type": "none"}
    steps = last["processors"] if last["type"] == "Sequence" else [last]
    return [token for step in steps if step["type"] == "TemplateProcessing" for token in _opening_of(step)]


def added_tokens_of(tokenizer_json: Mapping[str, Any]) -> list[AddedToken]:
    """The added tokens in the file's order."""
    return [AddedToken(it["id"], it["content"], it["special"]) for it in tokenizer_json["added_tokens"]]


def pieces_of(model: Mapping[str, Any]) -> Iterator[tuple[str, int]]:
    """Text and id of the model's own tokens. Raises UnsupportedTokenizer."""
    match model["type"]:
        case "BPE":
            yield from model["vocab"].items()
        case "Unigram":
            yield from ((text, token) for token, (text, _) in enumerate(model["vocab"]))
        case other:
            raise UnsupportedTokenizer(f"the model type {other} is not supported; BPE and Unigram are")


def unknown_id_of(tokenizer_json: Mapping[str, Any]) -> int | None:
    """The token for what the vocabulary cannot spell. It stands among the control tokens, but any text may need it."""
    model = tokenizer_json["model"]
    if model["type"] == "Unigram":
        unknown: int | None = model["unk_id"]
        return unknown
    return dict(pieces_of(model)).get(model["unk_token"])


def _spellings_of(tokenizer_json: Mapping[str, Any]) -> tuple[Callable[[str], bytes], Callable[[str], bytes]]:
    """How the model's own tokens and how added tokens are turned into bytes."""
    if _decoder_steps(tokenizer_json)[0]["type"] == "ByteLevel":
        return _ByteLevel(), str.encode
    return _sentencepiece_bytes, _sentencepiece_bytes


def _opening_of(template: Mapping[str, Any]) -> Iterator[int]:
    for piece in template["single"]:
        if "SpecialToken" not in piece:
            return
        yield from template["special_tokens"][piece["SpecialToken"]["id"]]["ids"]


def _decoder_steps(tokenizer_json: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    decoder = tokenizer_json.get("decoder") or {"type": "none"}
    steps: list[Mapping[str, Any]] = decoder["decoders"] if decoder["type"] == "Sequence" else [decoder]
    if [step["type"] for step in steps] != ["ByteLevel"] and not _is_sentencepiece(steps):
        names = ", ".join(step["type"] for step in steps)
        raise UnsupportedTokenizer(f"the decoder {decoder['type']} ({names}) is not supported; ByteLevel and SentencePiece's are")
    return steps


def _is_sentencepiece(steps: list[Mapping[str, Any]]) -> bool:
    """Whether the steps are Replace "▁" by a space, ByteFallback, Fuse, and maybe a Strip of spaces at the start."""
    if [step["type"] for step in steps] not in (_PIECE_STEPS, [*_PIECE_STEPS, "Strip"]):
        return False
    replaces = (steps[0]["pattern"], steps[0]["content"]) == ({"String": "▁"}, " ")
    return replaces and all((it["content"], it["stop"]) == (" ", 0) for it in steps[len(_PIECE_STEPS) :])


def _sentencepiece_bytes(piece: str) -> bytes:
    if len(piece) == 6 and piece.startswith("<0x") and piece.endswith(">"):
        return bytes.fromhex(piece[3:5])
    return piece.replace("▁", " ").encode()


class _ByteLevel:
    """GPT-2's alphabet: printable Latin-1 stands for itself, the other bytes for the characters from U+0100 on, in order."""

    def __init__(self) -> None:
        plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
        others = [byte for byte in range(256) if byte not in plain]
        self._bytes = {chr(byte): byte for byte in plain} | {chr(0x100 + at): byte for at, byte in enumerate(others)}

    def __call__(self, piece: str) -> bytes:
        try:
            return bytes([self._bytes[character] for character in piece])
        except KeyError:
            # As the library has it: text outside the alphabet stands for itself.
            return piece.encode()


_PIECE_STEPS = ["Replace", "ByteFallback", "Fuse"]

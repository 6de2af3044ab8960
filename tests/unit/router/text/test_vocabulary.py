"""Bytes by token, out of tokenizer.json."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tokenizers import pre_tokenizers

from router.text.vocabulary import AddedToken, UnsupportedTokenizer, leading_spaces_of, token_bytes_of, unknown_id_of
from tests.models import build_chatml_model, build_sentencepiece_model, build_unigram_model

PIECES: list[dict[str, Any]] = [
    {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
    {"type": "ByteFallback"},
    {"type": "Fuse"},
]
STRIP: dict[str, Any] = {"type": "Strip", "content": " ", "start": 1, "stop": 0}


def describe(decoder: Any, vocab: dict[str, int], *added: tuple[int, str, bool]) -> dict[str, Any]:
    """A tokenizer.json with only what the table is made from."""
    tokens = [{"id": token, "content": text, "special": special} for token, text, special in added]
    return {"decoder": decoder, "model": {"type": "BPE", "vocab": vocab}, "added_tokens": tokens}


def test_every_byte_has_its_character_in_the_byte_level_alphabet() -> None:
    """The 256 characters of GPT-2's alphabet stand for the 256 bytes."""
    vocab = {piece: at for at, piece in enumerate(pre_tokenizers.ByteLevel.alphabet())}
    assert sorted(token_bytes_of(describe({"type": "ByteLevel"}, vocab))) == [bytes([byte]) for byte in range(256)]


def test_byte_level_pieces_become_their_bytes() -> None:
    """A space is written as Ġ, and a character's bytes may be cut."""
    table = token_bytes_of(describe({"type": "ByteLevel"}, {"Ġhi": 0, "ÃŁ": 1, "ðŁ": 2}))
    assert table == [b" hi", "ß".encode(), b"\xf0\x9f"]


def test_sentencepiece_pieces_become_their_bytes() -> None:
    """▁ is a space, <0x0A> one byte, other text itself."""
    vocab = {"▁hi▁": 0, "<0x0A>": 1, "<0xff>": 2, "é": 3, "<0x>": 4}
    table = token_bytes_of(describe({"type": "Sequence", "decoders": PIECES}, vocab))
    assert table == [b" hi ", b"\n", b"\xff", "é".encode(), b"<0x>"]


def test_control_tokens_have_no_text_and_other_added_tokens_their_own() -> None:
    """An added token that is not control is text, in no alphabet; ids without a token have none."""
    source = describe({"type": "ByteLevel"}, {"<s>": 0, "a": 1}, (0, "<s>", True), (3, "é", False))
    assert token_bytes_of(source) == [b"", b"a", b"", "é".encode()]


@pytest.mark.parametrize(("decoders", "spaces"), [([{"type": "ByteLevel"}], 0), (PIECES, 0), ([*PIECES, STRIP], 1)], ids=str)
def test_a_strip_says_how_many_spaces_are_dropped_at_the_start(decoders: list[dict[str, Any]], spaces: int) -> None:
    """Byte-level and plain SentencePiece decoders drop none."""
    assert leading_spaces_of(describe({"type": "Sequence", "decoders": decoders}, {"a": 0})) == spaces


@pytest.mark.parametrize(
    ("decoder", "name"),
    [
        (None, "none"),
        ({"type": "WordPiece"}, "WordPiece"),
        ({"type": "Metaspace"}, "Metaspace"),
        ({"type": "Sequence", "decoders": []}, "Sequence"),
        ({"type": "Sequence", "decoders": [*PIECES, STRIP | {"stop": 1}]}, "Strip"),
        ({"type": "Sequence", "decoders": [STRIP, *PIECES]}, "Strip"),
        ({"type": "Sequence", "decoders": [PIECES[0] | {"content": "_"}, *PIECES[1:]]}, "Replace"),
    ],
    ids=str,
)
def test_an_unknown_decoder_is_refused_by_name(decoder: Any, name: str) -> None:
    """A table is never guessed."""
    with pytest.raises(UnsupportedTokenizer, match=f"decoder.*{name}"):
        token_bytes_of(describe(decoder, {"a": 0}))


def test_an_unknown_kind_of_model_is_refused_by_name() -> None:
    """Only BPE and Unigram models are read."""
    with pytest.raises(UnsupportedTokenizer, match="WordPiece"):
        token_bytes_of({"decoder": {"type": "ByteLevel"}, "model": {"type": "WordPiece"}, "added_tokens": []})


@pytest.mark.parametrize(("build", "unknown"), [(build_chatml_model, None), (build_sentencepiece_model, 0), (build_unigram_model, 0)])
def test_the_unknown_token_is_found_in_every_kind_of_model(build: Any, unknown: int | None, tmp_path: Path) -> None:
    """Byte-level models have none."""
    source = json.loads((build(tmp_path) / "tokenizer.json").read_text(encoding="utf-8"))
    assert unknown_id_of(source) == unknown


@pytest.mark.parametrize(
    ("text", "control", "guarded"),
    [("<s>", True, True), ("<think>", False, True), ("\n\n", False, False), ("▁▁", False, False), ("é", False, False)],
)
def test_callers_may_write_added_tokens_that_are_mere_spelling(text: str, control: bool, guarded: bool) -> None:
    """Runs of blanks and single characters are text; tags and control tokens are not."""
    assert AddedToken(7, text, control).guarded is guarded

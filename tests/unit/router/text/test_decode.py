"""Token ids to text: whole characters, whatever the bytes."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.text.decode import Decoder, UnknownToken
from tests.unit.router.text.model_pair import ModelPair

SPLIT_CHARACTERS = ["🔥", "語", "é", "👩‍👩‍👧", "e\u0301", "a🔥b"]


def decode_each(tokens: Sequence[bytes], *, lead: int = 0) -> list[str]:
    """The deltas of an answer that gives each token by itself, and its flush."""
    decoder = Decoder(tokens, lead=lead)
    return [*(decoder.feed([token]) for token in range(len(tokens))), decoder.flush()]


def test_a_character_over_three_tokens_comes_with_its_last_byte() -> None:
    """Nothing is shown for a half character, and no U+FFFD appears."""
    assert decode_each([b"\xf0\x9f", b"\x94", b"\xa5", b" ok"]) == ["", "", "🔥", " ok", ""]


@pytest.mark.parametrize("text", SPLIT_CHARACTERS)
def test_every_way_to_cut_a_character_gives_the_same_text(text: str) -> None:
    """Cut in three at any two bytes, the deltas join to the text and none holds U+FFFD."""
    data = text.encode()
    for first, second in combinations(range(len(data) + 1), 2):
        deltas = decode_each([data[:first], data[first:second], data[second:]])
        assert "".join(deltas) == text
        assert "\ufffd" not in "".join(deltas)


def test_an_impossible_byte_is_one_replacement_and_ends_nothing() -> None:
    """The stream goes on behind a byte that is not UTF-8."""
    assert decode_each([b"ok", b"\xff", b" end"]) == ["ok", "\ufffd", " end", ""]


def test_a_cut_character_is_replaced_when_something_else_follows() -> None:
    """Two bytes of a character that is never completed are one U+FFFD."""
    assert decode_each([b"\xf0\x9f", b"A"]) == ["", "\ufffdA", ""]


def test_flush_replaces_a_cut_tail_once() -> None:
    """An answer that ends within a character ends with U+FFFD, and a second flush adds nothing."""
    decoder = Decoder([b"a\xf0\x9f"])
    assert decoder.feed([0]) == "a"
    assert (decoder.flush(), decoder.flush()) == ("\ufffd", "")


def test_ids_of_one_step_are_decoded_together() -> None:
    """A step with several tokens gives one text, a step with none gives nothing."""
    decoder = Decoder([b"a", b"\xc3", b"\xa9"])
    assert decoder.feed([0, 1, 2, 0]) == "aéa"
    assert decoder.feed([]) == ""


@pytest.mark.parametrize("ids", [[3], [-1], [0, -1], [-9], [2**31 - 1]])
def test_an_id_outside_the_vocabulary_is_refused(ids: list[int]) -> None:
    """A worker's wrong id is an error, also a negative one, which would read the table from its end."""
    with pytest.raises(UnknownToken, match="vocabulary of 3 tokens"):
        Decoder([b"a", b"b", b"c"]).feed(ids)


@given(st.lists(st.binary(max_size=6), max_size=12))
def test_the_cut_into_tokens_does_not_change_the_text(tokens: list[bytes]) -> None:
    """Any bytes, cut anyhow, give what one decoder gives for all of them at once."""
    assert "".join(decode_each(tokens)) == b"".join(tokens).decode(errors="replace")


@given(st.text(), st.integers(min_value=0))
def test_shown_text_and_pending_bytes_are_all_bytes_so_far(text: str, cut: int) -> None:
    """What log probabilities report as bytes is the text's bytes and the held tail."""
    data = text.encode()[: cut % (len(text.encode()) + 1)]
    decoder = Decoder([data])
    assert decoder.feed([0]).encode() + decoder.pending == data


@pytest.mark.parametrize(
    ("tokens", "text"),
    [
        ([b" a", b" b"], "a b"),
        ([b"", b" a"], "a"),
        ([b" ", b" a"], " a"),
        ([b"a", b" b"], "a b"),
        ([b" \xc3", b"\xa9"], "é"),
    ],
)
def test_the_space_of_sentencepiece_is_dropped_where_the_text_begins(tokens: list[bytes], text: str) -> None:
    """One leading space goes, once, also when a control token comes first or a character is cut behind it."""
    assert "".join(decode_each(tokens, lead=1)) == text


@given(text=st.text())
def test_an_answer_reads_as_with_hugging_face(pair: ModelPair, text: str) -> None:
    """Token by token, the joined text is that of the library's DecodeStream, for all kinds of models."""
    ids = pair.encode_text(text.replace("\0", ""))
    decoder = pair.tokenizer.decoder()
    assert "".join(decoder.feed([token]) for token in ids) + decoder.flush() == pair.decode_stream(ids)

"""JSON read strictly: what is taken, what is mended, and in which words the rest is refused."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.errors import CallerError
from router.transport.http.strict_json import parse_json

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(VALUES, st.booleans())
def test_what_json_writes_is_read(value: object, ascii_only: bool) -> None:
    """Any value, escaped or not."""
    assert parse_json(json.dumps(value, ensure_ascii=ascii_only).encode()) == value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (rb'"\ud83d\udd25"', "🔥"),
        (rb'"\ud83d"', "\ufffd"),
        (rb'"\udd25 \ud83d"', "\ufffd \ufffd"),
        (rb'"\ud83d\ud83d\udd25"', "\ufffd🔥"),
        (rb'"\\ud83d"', r"\ud83d"),
        (rb'"\\\ud83d"', "\\\ufffd"),
        (rb'{"\ud83d": 1}', {"\ufffd": 1}),
    ],
)
def test_halves_of_pairs_become_a_replacement(text: bytes, value: object) -> None:
    """Whole pairs are their character, and a backslash that is escaped begins no escape."""
    assert parse_json(text) == value


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"", "the body is not JSON: Expecting value at character 0"),
        (b"{} x", "the body is not JSON: Extra data at character 3"),
        (b"\xff", "the body is not UTF-8"),
        (b'{"secret": NaN}', "the body holds NaN or Infinity, which JSON does not have"),
        (b"[-Infinity]", "the body holds NaN or Infinity, which JSON does not have"),
        (b"[1e400]", "the body holds a number that is too large"),
        (b"9" * 5000, "the body holds a number of too many digits"),
        (b'{"secret": 1, "secret": 1}', "the body names a field twice in one object"),
        (b'[{"a": {"b": 1, "b": 2}}]', "the body names a field twice in one object"),
        (b"[" * 50_000, "the body is nested too deeply"),
        (b"[" * 100_000, "the body holds too many values; at most 98304 bytes of it may stand outside of texts"),
    ],
)
def test_what_is_refused(text: bytes, words: str) -> None:
    """In words of ours, without any of the text."""
    with pytest.raises(CallerError) as caught:
        parse_json(text)
    assert (caught.value.reason, caught.value.message) == ("BODY_UNREADABLE", words)


def test_other_texts_have_other_names() -> None:
    """A message of a WebSocket is no body."""
    with pytest.raises(CallerError, match="the message is not JSON") as caught:
        parse_json(b"x", "message")
    assert caught.value.reason == "MESSAGE_UNREADABLE"

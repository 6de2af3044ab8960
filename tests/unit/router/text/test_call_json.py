"""The JSON of tool calls."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.text.call_json import HEAD, JsonEnd, is_object, may_be_call, read_call

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(alphabet='a"\\{}[]é\n', max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(alphabet='a"\\}', max_size=3), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.text(max_size=3), values, max_size=3), st.text(max_size=5), st.data())
def test_an_object_ends_where_json_says(value: dict[str, Any], rest: str, data: st.DataObject) -> None:
    """Whatever its strings hold, whatever follows, and wherever the text is cut."""
    text = json.dumps(value, ensure_ascii=False)
    at = data.draw(st.integers(0, len(text) - 1))
    end = JsonEnd()
    assert end.find(text[:at]) is None
    assert end.find(text + rest, at) == len(text)


def test_an_escape_may_be_cut() -> None:
    """The character behind a backslash ends no string, also when it comes later, and when nothing comes in between."""
    end = JsonEnd()
    assert end.find('{"a\\') is None
    assert end.find('{"a\\', 4) is None
    assert end.find('{"a\\"}', 4) is None
    assert end.find('{"a\\"}": 1}', 6) == 11


def test_an_object_that_is_open_already_ends_at_its_brace() -> None:
    """As after a call's arguments."""
    assert JsonEnd(depth=1).find(', "id": "}"} rest') == 12


def test_the_head_of_a_call_ends_before_its_arguments() -> None:
    """It has the name in it, and nothing of the arguments."""
    head = HEAD.match('{"name": "look", "arguments": {"a": 1}}')
    assert head
    assert (head["name"], head.end()) == ("look", 30)


@pytest.mark.parametrize(("text", "may"), [("{", True), ('{"na', True), ('{"name"', True), ('{"city"', False), ("{1", True)])
def test_an_objects_first_key_tells_whether_it_may_be_a_call(text: str, may: bool) -> None:
    """As soon as it is there."""
    assert may_be_call(text, 0) is may


@pytest.mark.parametrize("text", ["[1]", "1", "{", '{"a": NaN}', '{"a": Infinity}', "", '{"a":' * 5000, '{"a": ' + "1" * 5000 + "}"])
def test_what_is_no_object_is_none(text: str) -> None:
    """Of another type, cut, not JSON, nested too deeply, or with a number that is too long."""
    assert not is_object(text)
    assert read_call(text) == ("", "")


def test_large_numbers_stay_exact() -> None:
    """They are not rounded to a double."""
    assert read_call('{"arguments": {"a": 9007199254740993}, "name": "f"}') == ("f", '{"a": 9007199254740993}')

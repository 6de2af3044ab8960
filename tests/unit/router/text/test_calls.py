"""Tool calls in an answer: what is one, what stays text, and that cuts do not matter."""

from __future__ import annotations

import json
from collections.abc import Iterable
from itertools import chain, count
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.model import TextDelta
from router.text.call_format import FORMATS, HERMES, LLAMA, MISTRAL, CallFormat
from router.text.calls import MAX_BLANKS, MAX_HELD, CallParser, make_call_id
from router.tools import ToolCallDelta

NAMES = ("look", "go")
Answer = list[Any]


def new_parser(form: CallFormat = HERMES, names: Iterable[str] = NAMES, **options: bool) -> CallParser:
    ids = count(1)
    return CallParser(form, tuple(names), new_id=lambda: f"id{next(ids)}", **options)


def read(parser: CallParser, *pieces: str) -> Answer:
    """The whole answer: texts as they are, calls as (id, name, arguments), each joined from its pieces."""
    answer: Answer = []
    for piece in [*chain.from_iterable(map(parser.feed, pieces)), *parser.flush()]:
        if isinstance(piece, TextDelta):
            answer = [*answer[:-1], answer[-1] + piece.text] if answer and isinstance(answer[-1], str) else [*answer, piece.text]
        elif piece.name:
            answer.append((piece.id, piece.name, piece.arguments))
        else:
            id, name, arguments = answer[-1]
            answer[-1] = id, name, arguments + piece.arguments
    return answer


def feed(parser: CallParser, text: str) -> list[TextDelta | ToolCallDelta]:
    return list(parser.feed(text))


def call(name: str = "look", arguments: str = "{}", form: CallFormat = HERMES) -> str:
    return f'{{"name": "{name}", "{form.arguments}": {arguments}}}'


LOOK, GO = ("id1", "look", '{"at": "}"}'), ("id2", "go", "{}")
WHOLE = {
    "hermes": (HERMES, f"<tool_call>\n{call(arguments=LOOK[2])}\n</tool_call>\n<tool_call>\n{call('go')}\n</tool_call>\n"),
    "hermes without line breaks": (HERMES, f"<tool_call>{call(arguments=LOOK[2])}</tool_call><tool_call>{call('go')}</tool_call>"),
    "hermes in one element": (HERMES, f"<tool_call>[{call(arguments=LOOK[2])}, {call('go')}]</tool_call>"),
    "hermes without ends": (HERMES, f"<tool_call>\n{call(arguments=LOOK[2])}\n<tool_call>\n{call('go')}"),
    "mistral": (MISTRAL, f"[TOOL_CALLS] [{call(arguments=LOOK[2])}, {call('go')}]"),
    "mistral with ids": (MISTRAL, '[TOOL_CALLS][{"name": "look", "arguments": {"at": "}"}, "id": "a}b"}, {"name": "go", "arguments": {}}]'),
    "llama": (LLAMA, f"{call(arguments=LOOK[2], form=LLAMA)}; {call('go', form=LLAMA)}"),
    "llama with its tag": (LLAMA, f"<|python_tag|>{call(arguments=LOOK[2], form=LLAMA)};{call('go', form=LLAMA)}"),
    "llama with types": (LLAMA, '\n{"type": "function", "name": "look", "parameters": {"at": "}"}}\n{"type":"function","name":"go"}'),
}


@pytest.mark.parametrize("case", WHOLE)
def test_calls_are_found_in_each_format(case: str) -> None:
    """Two calls, with all their arguments and without any text around them."""
    form, answer = WHOLE[case]
    parser = new_parser(form)
    assert read(parser, answer) in ([LOOK, GO], [(LOOK[0], LOOK[1], '{"at": "}"}'), GO])
    assert parser.whole


@pytest.mark.parametrize("case", WHOLE)
def test_cuts_in_every_place_give_the_same_calls(case: str) -> None:
    """Character by character, and in two pieces wherever they are cut."""
    form, answer = WHOLE[case]
    whole = read(new_parser(form), answer)
    assert read(new_parser(form), *answer) == whole
    for at in range(len(answer)):
        assert read(new_parser(form), answer[:at], answer[at:]) == whole


PIECES = [
    *(mark for form in FORMATS for mark in (form.opening, form.closing) if mark),
    *("<", "tool_call", "[", "]", "{", "}", '"', "\\", ",", ";", ":", " ", "\n", "é", "text", "null", "{}"),
    *('{"name": "look", "arguments": ', '{"name": "go", "parameters": {', '{"name": "other", "arguments": {}}', '{"arguments": {"a": 1}, '),
    *('"name": "look"}', '"id": "x"', call(), call(form=LLAMA), call(arguments='{"a": [1, "}"]}'), '{"type": "function", "name": "go"}'),
]


@given(st.sampled_from(FORMATS), st.lists(st.sampled_from(PIECES), max_size=12), st.booleans(), st.data())
def test_how_an_answer_is_cut_does_not_matter(form: CallFormat, pieces: list[str], forced: bool, data: st.DataObject) -> None:
    """Any cut of any answer, however mangled its calls, gives the same texts and calls, and the same verdict."""
    answer = "".join(pieces)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(answer)), max_size=6)))
    whole, cut = new_parser(form, forced=forced), new_parser(form, forced=forced)
    parts = [answer[start:end] for start, end in zip([0, *cuts], [*cuts, len(answer)], strict=True)]
    assert read(cut, *parts) == read(whole, answer)
    assert cut.whole == whole.whole


@given(st.sampled_from(FORMATS), st.lists(st.sampled_from(PIECES), max_size=12))
def test_an_answer_without_offered_calls_is_its_text(form: CallFormat, pieces: list[str]) -> None:
    """Nothing is lost or changed by looking for calls."""
    answer = "".join(pieces)
    assert "".join(read(new_parser(form, names=()), *answer)) == answer


@given(st.sampled_from(FORMATS), st.lists(st.sampled_from(PIECES), max_size=12))
def test_a_verdict_of_whole_means_valid_calls(form: CallFormat, pieces: list[str]) -> None:
    """Then each call is of an offered tool, and its arguments are a JSON object."""
    parser = new_parser(form)
    calls = [it for it in read(parser, "".join(pieces)) if not isinstance(it, str)]
    if parser.whole:
        assert calls
        for _, name, arguments in calls:
            assert name in NAMES
            assert isinstance(json.loads(arguments), dict)


def test_text_before_and_behind_calls_is_text() -> None:
    """Blanks between text and a call belong to the call."""
    answer = f"Let me see.\n\n<tool_call>\n{call()}\n</tool_call>\nDone."
    assert read(new_parser(), answer) == ["Let me see.", ("id1", "look", "{}"), "\nDone."]


def test_text_passes_at_once() -> None:
    """Only blanks and what may begin a call are held back."""
    parser = new_parser()
    assert feed(parser, "a < b ") == [TextDelta("a < b")]
    assert feed(parser, "<tool") == []
    assert feed(parser, "box>") == [TextDelta(" <toolbox>")]


def test_arguments_pass_as_they_come() -> None:
    """First id and name, then each piece of the arguments."""
    parser = new_parser()
    assert feed(parser, '<tool_call>{"name": "look", "arguments": ') == []
    assert feed(parser, "{") == [ToolCallDelta(0, "id1", "look"), ToolCallDelta(0, arguments="{")]
    assert feed(parser, '"at": 1') == [ToolCallDelta(0, arguments='"at": 1')]
    assert feed(parser, "}}</tool_call>") == [ToolCallDelta(0, arguments="}")]


@pytest.mark.parametrize(
    ("written", "arguments"),
    [
        ('{"arguments": {"a": 42}, "name": "look"}', '{"a": 42}'),
        ('{"name": "look", "arguments": "{\\"a\\": 42}"}', '{"a": 42}'),
        ('{"name": "look", "arguments": null}', "{}"),
        ('{"name": "look", "arguments": ""}', None),
        ('{"name": "look"}', "{}"),
        ('{ "name" : "look" , "arguments" : { "a": 42 } }', '{ "a": 42 }'),
        ('{"name": "look", "arguments": {"a": 42}', '{"a": 42}'),
        ('{"name": "look", "arguments": {"a": "\\ud83d"}}', '{"a": "\\ud83d"}'),
        ('{"arguments": {"a": "\\ud83d"}, "name": "look"}', '{"a": "\\ud83d"}'),
        ('{"name": "look", "arguments": 7}', None),
        ('{"name": 7, "arguments": {}}', None),
        ('{"name": "other", "arguments": {}}', None),
        ('{"title": "look", "arguments": {}}', None),
        ('{"name": "look", "arguments": [1]}', None),
        ("look(1)", None),
        ("", None),
    ],
)
def test_shapes_of_a_call(written: str, arguments: str | None) -> None:
    """Any order, no arguments, arguments as text, a brace too few: all are calls. What is none stays the text that it was."""
    answer = f"<tool_call>\n{written}\n</tool_call>"
    assert read(new_parser(), answer) == ([answer] if arguments is None else [("id1", "look", arguments)])


@pytest.mark.parametrize("arguments", ['{"a": nope}', '{"a": NaN}', '{"a": 1]', "{" * 2000 + "}" * 2000, '{"a": ', '{"a": "cut'])
def test_a_call_that_goes_wrong_is_not_whole(arguments: str) -> None:
    """It has been given out; the verdict says that it must not be carried out, whatever whole calls come before and after."""
    parser = new_parser()
    answer = read(parser, f"<tool_call>{call('go')}</tool_call>", f"<tool_call>{call(arguments=arguments)}", f"<tool_call>{call('go')}")
    assert [it[1] for it in answer if not isinstance(it, str)][:2] == ["go", "look"]
    assert not parser.whole


def test_one_call_is_enough_where_calls_are_not_parallel() -> None:
    """The answer ends behind it."""
    parser = new_parser(parallel=False)
    feed(parser, f"<tool_call>{call()[:-2]}")
    assert not parser.done
    feed(parser, "}}")
    assert parser.done


def test_a_forced_call_begins_at_once() -> None:
    """Its beginning stands in the prompt already."""
    assert read(new_parser(forced=True), call()) == [("id1", "look", "{}")]


def test_a_forced_answer_is_one_call_or_nothing() -> None:
    """Cut anywhere in its call, in another form or of other words it is nothing; what stands behind the arguments is no matter."""
    text = call(arguments='{"at": "}"}')
    for end in range(len(text)):
        whole = [("id1", "look", '{"at": "}"}')] if end == len(text) - 1 else []
        assert read(new_parser(forced=True), *text[:end]) == whole, end
    broken = 'text <tool_call>{"name": "look", "arguments": {"'
    for other in ("no", call("other"), call(arguments="{nothing}"), broken):
        assert read(new_parser(forced=True), other) == []
    assert read(new_parser(forced=True), f"{call()}, {call('go')} and text") == [("id1", "look", "{}")]


@pytest.mark.parametrize("form", FORMATS)
def test_an_answer_may_begin_with_a_call_at_once(form: CallFormat) -> None:
    """Text behind it is text, and a call behind text needs its opening."""
    assert read(new_parser(form), f" {call(form=form)}\nDone.") == [("id1", "look", "{}"), "Done."]
    assert read(new_parser(form), f"See: {call(form=form)}") == [f"See: {call(form=form)}"]


def test_a_json_answer_is_text() -> None:
    """As soon as its first key is none of a call's."""
    assert "".join(piece.text for piece in new_parser().feed('{"city"') if isinstance(piece, TextDelta)) == '{"city"'


def test_what_may_become_a_call_is_bounded() -> None:
    """Neither blanks nor an object that has not begun as a call are held back without end."""
    blanks, parser = "\n" * (MAX_BLANKS + 7), new_parser()
    assert read(parser, blanks, f"<tool_call>{call()}") == ["\n" * 7, ("id1", "look", "{}")]
    parser = new_parser()
    shown = feed(parser, '<tool_call>{"arguments": {"a": "' + "x" * MAX_HELD)
    assert sum(len(piece.text) for piece in shown if isinstance(piece, TextDelta)) > MAX_HELD
    assert feed(parser, "more") == [TextDelta("more")]
    assert feed(new_parser(), "<tool_call>" + " " * (MAX_HELD + 1)) != []


def test_long_arguments_are_not_bounded_here() -> None:
    """The answer's length bounds them, and they are not held back."""
    arguments = json.dumps({"a": "x" * 3 * MAX_HELD})
    assert read(new_parser(), f"<tool_call>{call(arguments=arguments)}") == [("id1", "look", arguments)]


def test_ids_are_nine_letters_and_digits() -> None:
    """Which every known chat template takes; and they differ."""
    ids = {make_call_id() for _ in range(100)}
    assert len(ids) == 100
    assert all(len(it) == 9 and it.isalnum() for it in ids)

"""Conversations arranged for templates that take more or less."""

from __future__ import annotations

import json
from typing import Any

import pytest

from router.text.conversation import arrange_messages
from router.text.template import ChatTemplate
from router.text.traits import SystemPlace, TemplateRefused, TemplateTraits
from tests.models import CHATML_TEMPLATE

ANYWHERE = "{% for m in messages %}{{ m.role }}:{{ m.content }};{% endfor %}"
FIRST = (
    "{% for m in messages %}{% if m.role == 'system' and not loop.first %}{{ raise_exception('system must be first') }}"
    "{% endif %}{{ m.role }}:{{ m.content }};{% endfor %}"
)
NONE = (
    "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}"
    "{{ m.role }}:{{ m.content }};{% endfor %}"
)
SILENT = "{% for m in messages if m.role != 'system' %}{{ m.role }}:{{ m.content }};{% endfor %}"
HOISTING = (
    "{% for m in messages if m.role == 'system' %}{{ m.role }}:{{ m.content }};{% endfor %}"
    "{% for m in messages if m.role != 'system' %}{{ m.role }}:{{ m.content }};{% endfor %}"
)


def converse(*roles: str) -> list[dict[str, str]]:
    """Messages of these roles, whose contents are a, b, c and so on."""
    return [{"role": role, "content": chr(ord("a") + at)} for at, role in enumerate(roles)]


def arrange(*messages: dict[str, Any]) -> list[dict[str, Any]]:
    return arrange_messages(messages, TemplateTraits())


@pytest.mark.parametrize(
    ("source", "roles", "prompt"),
    [
        (ANYWHERE, ["user", "system", "user"], "user:a;system:b;user:c;"),
        (ANYWHERE, ["system", "developer", "user"], "system:a;system:b;user:c;"),
        (FIRST, ["system", "user"], "system:a;user:b;"),
        (FIRST, ["user", "system", "user"], "system:b;user:a;user:c;"),
        (FIRST, ["system", "system", "user"], "system:a\n\nb;user:c;"),
        (FIRST, ["developer", "user"], "system:a;user:b;"),
        (FIRST, ["user"], "user:a;"),
        (HOISTING, ["user", "system", "user"], "system:b;user:a;user:c;"),
        (NONE, ["system", "user", "assistant", "user"], "user:a\n\nb;assistant:c;user:d;"),
        (NONE, ["user", "system", "user"], "user:b\n\na;user:c;"),
        (NONE, ["system", "system", "user"], "user:a\n\nb\n\nc;"),
        (NONE, ["developer", "user"], "user:a\n\nb;"),
        (NONE, ["system"], "user:a;"),
        (SILENT, ["system", "user"], "user:a\n\nb;"),
    ],
)
def test_system_messages_go_where_the_template_writes_them(source: str, roles: list[str], prompt: str) -> None:
    """In place, else merged into the first, else into the first user message; no shape is an error."""
    assert ChatTemplate(source).render(converse(*roles)) == prompt


def test_an_unknown_role_is_refused_by_its_place() -> None:
    """The role itself is not repeated: it may be anything."""
    with pytest.raises(TemplateRefused, match=r"^messages\[1\]\.role must be") as caught:
        arrange(*converse("user", "wizard"))
    assert "wizard" not in str(caught.value)


def test_a_missing_content_beside_tool_calls_prints_nothing() -> None:
    """Neither None nor null gets into the prompt."""
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": None}}
    messages: list[dict[str, Any]] = [
        {"role": "user", "content": "go", "name": None},
        {"role": "assistant", "content": None, "tool_calls": [call], "refusal": None},
        {"role": "tool", "content": "ok", "tool_call_id": "1"},
    ]
    prompt = ChatTemplate(CHATML_TEMPLATE).render(messages)
    assert '{"name": "f", "arguments": {}}' in prompt
    assert "None" not in prompt
    assert "null" not in prompt


def test_a_result_has_the_name_of_the_tool() -> None:
    """Some templates insist on it, and callers rarely give one; a name that is given stays, and an unknown call has none."""
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    results = [{"role": "tool", "content": "ok", "tool_call_id": id, **more} for id, more in (("1", {}), ("1", {"name": "g"}), ("2", {}))]
    arranged = arrange({"role": "assistant", "tool_calls": [call]}, *results)
    assert [it.get("name") for it in arranged[1:]] == ["f", "g", None]


@pytest.mark.parametrize("role", ["user", "system", "tool"])
def test_only_an_assistant_may_lack_content(role: str) -> None:
    """For others it is the caller's error, by its place."""
    with pytest.raises(TemplateRefused, match=r"^messages\[0\]\.content must be text$"):
        arrange({"role": role, "content": None})


@pytest.mark.parametrize(
    ("arguments", "arranged"),
    [
        ('{"x": 42, "y": null}', {"x": 42, "y": None}),
        ({"x": 42}, {"x": 42}),
        ("", {}),
        (None, {}),
        ("{}", {}),
        ('{"cut": ', '{"cut": '),
        ("[1]", "[1]"),
        ("[" * 100_000, "[" * 100_000),
    ],
    ids=lambda value: json.dumps(value)[:20],
)
def test_arguments_of_tool_calls_are_given_as_objects(arguments: Any, arranged: Any) -> None:
    """Templates turn them into JSON themselves; text that is no object stays text, and a tool without parameters has {}."""
    call = {"function": {"name": "f", "arguments": arguments}}
    message = arrange({"role": "assistant", "content": "", "tool_calls": [call]})[0]
    assert message["tool_calls"][0]["function"]["arguments"] == arranged


@pytest.mark.parametrize(("arguments", "text"), [('{"x":1}', '{"x":1}'), ({"x": "é"}, '{"x": "é"}'), (None, "{}"), ('{"cut', '{"cut')])
def test_arguments_are_given_as_text_where_the_template_wants_it(arguments: Any, text: str) -> None:
    """JSON text of the caller stays as it was written."""
    call = {"function": {"name": "f", "arguments": arguments}}
    messages = [{"role": "assistant", "content": "", "tool_calls": [call]}]
    arranged = arrange_messages(messages, TemplateTraits(object_arguments=False))
    assert arranged[0]["tool_calls"][0]["function"]["arguments"] == text


def test_an_empty_list_of_tool_calls_is_left_out() -> None:
    """Templates that ask whether it is defined would write an empty call."""
    assert "tool_calls" not in arrange({"role": "assistant", "content": "a", "tool_calls": []})[0]


def test_missing_content_is_null_only_beside_tool_calls_and_where_the_template_takes_it() -> None:
    """Elsewhere it is the empty text."""
    call = {"function": {"name": "f", "arguments": "{}"}}
    messages: list[dict[str, Any]] = [{"role": "assistant", "tool_calls": [call]}, {"role": "assistant", "content": None}]
    contents = [it["content"] for it in arrange_messages(messages, TemplateTraits(null_content=True))]
    assert contents == [None, ""]


def test_text_parts_are_joined_by_line_breaks() -> None:
    """Templates of text models expect one string."""
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    assert arrange({"role": "user", "content": parts})[0]["content"] == "a\nb"


@pytest.mark.parametrize("content", [[{"type": "image_url", "image_url": {"url": "x"}}], ["a"], 7, {"text": "a"}])
def test_content_that_is_not_text_is_refused(content: Any) -> None:
    """Images and other shapes are the caller's error, by its place."""
    with pytest.raises(TemplateRefused, match=r"^messages\[0\]\.content must be text$"):
        arrange({"role": "user", "content": content})


def test_the_callers_messages_are_left_alone() -> None:
    """What is arranged is a copy."""
    messages: list[dict[str, Any]] = [{"role": "developer", "content": [{"text": "a"}]}, {"role": "user", "content": "b"}]
    before = json.dumps(messages)
    arrange_messages(messages, TemplateTraits(SystemPlace.NOWHERE))
    assert json.dumps(messages) == before

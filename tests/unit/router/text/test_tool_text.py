"""Tools, calls and results in conversations for templates that know nothing of them."""

from __future__ import annotations

import json
from typing import Any

from router.text.call_format import HERMES
from router.text.calls import CallParser
from router.text.template import ChatTemplate
from router.text.tool_text import describe_tools, write_calls
from router.tools import ToolCallDelta

PLAIN = "{% for m in messages %}{{ m.role }}:{{ m.content }};{% endfor %}"
OWN_WAY = "{% for m in messages %}{{ m.role }}:{{ m.content }}{{ m.tool_calls }};{% endfor %}{{ tools }}"
TOOL: dict[str, Any] = {"type": "function", "function": {"name": "look", "description": "Sieht nach, überall.", "parameters": {}}}


def called(*arguments: Any, content: str = "") -> dict[str, Any]:
    calls = [{"id": f"{at}", "type": "function", "function": {"name": "look", "arguments": it}} for at, it in enumerate(arguments)]
    return {"role": "assistant", "content": content, "tool_calls": calls}


def test_calls_become_text_that_is_read_as_calls() -> None:
    """The model sees its earlier calls as it is told to write them."""
    (message,) = write_calls([called({"a": 1}, {"b": "é"}, content="Wait.")])
    assert set(message) == {"role", "content"}
    pieces = list(CallParser(HERMES, ["look"], new_id=lambda: "id").feed(message["content"]))
    arguments = [piece.arguments for piece in pieces if isinstance(piece, ToolCallDelta) and piece.arguments]
    assert arguments == ['{"a": 1}', '{"b": "é"}']
    assert message["content"].startswith("Wait.\n<tool_call>")


def test_arguments_that_are_no_object_stay_text() -> None:
    """Whatever a caller's history holds, nothing is an error."""
    assert '"arguments": {"cut' in write_calls([called('{"cut')])[0]["content"]


def test_results_are_what_the_user_says() -> None:
    """Results that follow each other are one message, for templates whose roles must alternate."""
    results = [{"role": "tool", "content": text, "tool_call_id": "1"} for text in ("sunny", "warm")]
    messages = write_calls([called({}), *results, {"role": "user", "content": "thanks"}])
    assert [it["role"] for it in messages] == ["assistant", "user", "user"]
    assert messages[1]["content"] == "<tool_response>\nsunny\n</tool_response>\n<tool_response>\nwarm\n</tool_response>"


def test_tools_are_described_in_the_first_system_message() -> None:
    """Behind what it says, or in one of their own; each as one line of JSON."""
    ask = {"role": "user", "content": "hi"}
    alone, user = describe_tools([ask], [TOOL, TOOL])
    assert (alone["role"], user) == ("system", ask)
    lines = alone["content"].split("<tools>\n")[1].split("\n</tools>")[0].splitlines()
    assert [json.loads(line) for line in lines] == [TOOL, TOOL]
    assert "überall" in lines[0]
    first, _, second = describe_tools([{"role": "system", "content": "be kind"}, ask, {"role": "system", "content": "x"}], [TOOL])
    assert first["content"] == f"be kind\n\n{describe_tools([], [TOOL])[0]['content']}"
    assert second["content"] == "x"


def test_percent_signs_of_callers_are_text() -> None:
    """They are no places to fill in."""
    tool = {"function": {"name": "f", "description": "100 %s %(x)s"}}
    assert "100 %s %(x)s" in describe_tools([], [tool])[0]["content"]
    assert "%s" in write_calls([called({"a": "%s"})])[0]["content"]


def test_a_template_without_tools_gets_them_as_text() -> None:
    """It is not given the tools themselves."""
    prompt = ChatTemplate(PLAIN).render([{"role": "user", "content": "hi"}], tools=[TOOL])
    assert prompt.startswith("system:# Tools\n")
    assert prompt.count('"look"') == 1


def test_a_template_that_leaves_calls_out_gets_them_as_text() -> None:
    """Also where the turn offers no tools: a result without its call would mean nothing."""
    prompt = ChatTemplate(PLAIN).render([called({"a": 1}), {"role": "tool", "content": "seen", "tool_call_id": "0"}])
    assert '<tool_call>\n{"name": "look", "arguments": {"a": 1}}\n</tool_call>' in prompt
    assert "user:<tool_response>\nseen\n</tool_response>;" in prompt


def test_a_template_with_a_way_that_cannot_be_read_keeps_it_only_without_tools() -> None:
    """With tools the conversation shows the way in which the model is told to call."""
    messages = [called({"a": 1})]
    assert "'name': 'look'" in ChatTemplate(OWN_WAY).render(messages)
    with_tools = ChatTemplate(OWN_WAY).render(messages, tools=[TOOL])
    assert "<tools>" in with_tools
    assert "'name': 'look'" not in with_tools

"""Bodies as turns: what each option becomes, and that every other one is refused by name."""

from __future__ import annotations

from typing import Any

import pytest

from router.errors import CallerError
from router.model import Guide, GuideKind, Message, Priority, Role, Sampling, ToolCall, TurnRequest
from router.tools import AUTO, Tool, ToolChoice, ToolMode
from router.transport.http.chat import ChatRequest
from router.transport.http.completions import CompletionRequest
from router.transport.http.fields import drop_unknown, read_fields

HI = [{"role": "user", "content": "hi"}]
PLAIN = TurnRequest("", [Message(Role.USER, "hi")], sampling=Sampling(temperature=1.0))


def turns_of(**options: Any) -> list[TurnRequest]:
    return read_fields(ChatRequest, {"messages": HI, **options}).turns()


def message_of(**fields: Any) -> Message:
    (turn,) = read_fields(ChatRequest, {"messages": [fields]}).turns()
    return turn.messages[0]


def faults_of(kind: Any, value: Any) -> dict[str, str]:
    """What is wrong, by field."""
    with pytest.raises(CallerError) as caught:
        read_fields(kind, value).turns()
    assert caught.value.reason == "FIELD_INVALID"
    return {it.field: it.description for it in caught.value.violations}


def test_a_plain_question() -> None:
    """Nothing is given that the caller did not give; null is not given."""
    assert turns_of() == turns_of(temperature=None, stop=None, tools=None, logit_bias=None, response_format=None) == [PLAIN]


def test_options_become_a_turn() -> None:
    """All those that a turn has."""
    (turn,) = turns_of(
        model="m",
        max_tokens=9,
        min_tokens=2,
        stop=["a", "b"],
        logprobs=True,
        priority="batch",
        max_wait_s=1.5,
        temperature=0,
        top_p=0.5,
        top_k=0,
        min_p=0.1,
        seed=0,
        presence_penalty=0,
        frequency_penalty=-1,
        repetition_penalty=1.1,
    )
    assert turn == TurnRequest(
        "m",
        PLAIN.messages,
        Sampling(0, 0.5, 0, 0.1, 0, 1.1, 0, -1),
        max_output_tokens=9,
        min_output_tokens=2,
        stop=("a", "b"),
        logprobs=True,
        priority=Priority.BATCH,
        max_wait_s=1.5,
    )


def test_each_answer_has_its_seed() -> None:
    """One turn for each of the `n` answers; without one, they differ by chance, as OpenAI's default temperature has it."""
    assert [turn.sampling.seed for turn in turns_of(n=3, seed=2**64 - 2)] == [2**64 - 2, 2**64 - 1, 0]
    assert turns_of(n=2) == [PLAIN, PLAIN]


def test_numbers_below_zero() -> None:
    """OpenAI's seeds are signed: each is another one of the engine's. As vLLM has it, a top_k of -1 is no bound."""
    assert [turn.sampling.seed for turn in turns_of(n=3, seed=-2)] == [2**64 - 2, 2**64 - 1, 0]
    assert turns_of(seed=-(2**63))[0].sampling.seed == 2**63
    assert turns_of(top_k=-1)[0].sampling.top_k == 0


@pytest.mark.parametrize(
    ("given", "most"),
    [({"max_tokens": 8}, 8), ({"max_completion_tokens": 4}, 4), ({"max_tokens": 8, "max_completion_tokens": 4}, 4)],
)
def test_two_names_of_one_limit(given: dict[str, int], most: int) -> None:
    """The newer one goes before."""
    assert turns_of(**given)[0].max_output_tokens == most


@pytest.mark.parametrize(("stop", "stops"), [("a", ("a",)), ("", ()), ([], ()), (["a", ""], ("a", "")), (None, ())])
def test_shapes_of_stop(stop: Any, stops: tuple[str, ...]) -> None:
    """A text is a list of one, and an empty one stops nothing; in a list it is for the check of turns."""
    assert turns_of(stop=stop)[0].stop == stops


@pytest.mark.parametrize(
    ("form", "guide"),
    [
        ({"type": "text"}, None),
        ({"type": "json_object"}, Guide(GuideKind.JSON)),
        ({"type": "json_schema", "json_schema": {"name": "n", "schema": {}}}, Guide(GuideKind.JSON_SCHEMA, "{}")),
        ({"type": "regex", "regex": "a+"}, Guide(GuideKind.REGEX, "a+")),
        ({"type": "ebnf", "ebnf": "root ::= x"}, Guide(GuideKind.GRAMMAR, "root ::= x")),
    ],
)
def test_forms_of_answers(form: Any, guide: Guide | None) -> None:
    """Each as the guide that workers know."""
    assert turns_of(response_format=form)[0].guide == guide


def test_a_schema_arrives_as_it_was_written() -> None:
    """Whole numbers stay whole and exact, names keep their order and spelling, and depth does not matter until it is absurd."""
    schema = {"z": 42, "a": 2**53 + 1, "é": [1.5, True, None]}
    (turn,) = turns_of(response_format={"type": "json_schema", "json_schema": {"schema": schema}})
    assert turn.guide == Guide(GuideKind.JSON_SCHEMA, '{"z": 42, "a": 9007199254740993, "é": [1.5, true, null]}')
    deep: Any = {}
    for _ in range(50_000):
        deep = {"a": deep}
    faults = faults_of(ChatRequest, {"messages": HI, "response_format": {"type": "json_schema", "json_schema": {"schema": deep}}})
    assert faults == {"response_format.json_schema.schema": "is nested too deeply"}
    while deep:  # an object this deep cannot be dropped at once
        deep = deep.pop("a")


def test_messages() -> None:
    """Roles, parts, calls and their results; what a client's own objects hold besides is ignored or empty."""
    assert message_of(role="developer", content="a") == Message(Role.SYSTEM, "a")
    assert message_of(role="user", content=[{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]) == Message(Role.USER, "a\nb")
    assert message_of(role="user", content=[]) == Message(Role.USER, "")
    assert message_of(role="user", content=None, name="ann") == Message(Role.USER, None)
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": '{"x": 42}'}}
    assert message_of(role="assistant", content=None, tool_calls=[call], refusal=None, audio=None) == Message(
        Role.ASSISTANT, None, (ToolCall("c", "f", '{"x": 42}'),)
    )
    assert message_of(role="assistant", content=None, tool_calls=[call | {"index": 0}], annotations=[]).tool_calls == (
        ToolCall("c", "f", '{"x": 42}'),
    )
    assert message_of(role="assistant", content=None, refusal="no") == Message(Role.ASSISTANT, "no")
    assert message_of(role="assistant", content="yes", refusal="no", parsed={"a": 1}) == Message(Role.ASSISTANT, "yes")
    assert message_of(role="tool", content="42", tool_call_id="c") == Message(Role.TOOL, "42", tool_call_id="c")


@pytest.mark.parametrize(
    ("value", "faults"),
    [
        ([], {"body": "must be an object"}),
        ({}, {"messages": "is required"}),
        ({"messages": "hi"}, {"messages": "must be a list"}),
        ({"messages": [{"content": "hi"}]}, {"messages[0].role": "is required"}),
        (
            {"messages": [{"role": "function", "content": "x"}]},
            {"messages[0].role": "must be 'developer', 'system', 'user', 'assistant' or 'tool'"},
        ),
        ({"messages": [{"role": "user", "content": 3}]}, {"messages[0].content": "must be a valid string"}),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]},
            {
                "messages[0].content[0].type": "must be 'text'",
                "messages[0].content[0].text": "is required",
                "messages[0].content[0].image_url": "is no option of this router",
            },
        ),
        ({"messages": HI, "max_token": 8}, {"max_token": "is no option of this router"}),
        ({"messages": HI, "functions": [{}]}, {"functions": "is no option of this router"}),
        ({"messages": HI, "top_logprobs": 21}, {"top_logprobs": "must be less than or equal to 20"}),
        ({"messages": HI, "ignore_eos": True}, {"ignore_eos": "needs max_tokens"}),
        ({"messages": HI, "logit_bias": {"1": 1}}, {"logit_bias": "must be empty: this is not served"}),
        ({"messages": HI, "store": True}, {"store": "must be False"}),
        ({"messages": HI, "n": True}, {"n": "must be a valid integer"}),
        ({"messages": HI, "n": 1.5}, {"n": "must be a valid integer"}),
        ({"messages": HI, "temperature": "1"}, {"temperature": "must be a valid number"}),
        ({"messages": HI, "seed": -(2**63) - 1}, {"seed": "must be greater than or equal to -9223372036854775808"}),
        ({"messages": HI, "seed": 2**64}, {"seed": "must be less than 18446744073709551616"}),
        ({"messages": HI, "top_k": -2}, {"top_k": "must be greater than or equal to -1"}),
        ({"messages": HI, "stop": ["a", 1]}, {"stop[1]": "must be a valid string"}),
        ({"messages": HI, "stream_options": {"usage": True}}, {"stream_options.usage": "is no option of this router"}),
        ({"messages": HI, "response_format": {"type": "json_schema"}}, {"response_format.json_schema": "is required"}),
        ({"messages": HI, "modalities": ["audio"]}, {"modalities[0]": "must be 'text'"}),
        ({"messages": HI, "tools": [{"type": "custom"}]}, {"tools[0].type": "must be 'function'", "tools[0].function": "is required"}),
        ({"messages": HI, "tools": [{"type": "function", "function": {}}]}, {"tools[0].function.name": "is required"}),
        ({"messages": HI, "tool_choice": "any"}, {"tool_choice": "must be 'auto', 'none' or 'required'"}),
        (
            {"messages": HI, "tool_choice": {"type": "allowed_tools"}},
            {"tool_choice.type": "must be 'function'", "tool_choice.function": "is required"},
        ),
    ],
)
def test_what_chat_refuses(value: Any, faults: dict[str, str]) -> None:
    """With the field's path as it is in the body."""
    assert faults_of(ChatRequest, value) == faults


def test_paths_and_lists_of_faults_are_bounded() -> None:
    """However many there are, and however long their names."""
    faults = faults_of(ChatRequest, {"messages": HI} | {f"{at}{'x' * 1000}": 1 for at in range(50)})
    assert len(faults) == 16
    assert max(map(len, faults)) == 96


def test_tools() -> None:
    """What is offered, schemas as they were written; no schema is not an empty one."""
    parameters = {"type": "object", "properties": {"x": {"const": 2**53 + 1}}}
    (turn,) = turns_of(
        tools=[
            {"type": "function", "function": {"name": "look", "description": "Looks.", "parameters": parameters, "strict": True}},
            {"type": "function", "function": {"name": "go", "description": None, "strict": None}},
            {"type": "function", "function": {"name": "stop", "parameters": {}}},
        ],
        parallel_tool_calls=False,
    )
    schema = '{"type": "object", "properties": {"x": {"const": 9007199254740993}}}'
    assert turn.tools == (Tool("look", "Looks.", schema), Tool("go"), Tool("stop", "", "{}"))
    assert not turn.parallel_tool_calls


@pytest.mark.parametrize(
    ("given", "choice"),
    [
        (None, AUTO),
        ("auto", AUTO),
        ("none", ToolChoice(ToolMode.NONE)),
        ("required", ToolChoice(ToolMode.REQUIRED)),
        ({"type": "function", "function": {"name": "look"}}, ToolChoice(name="look")),
    ],
)
def test_choices_of_tools(given: Any, choice: ToolChoice) -> None:
    """A word, or one tool by its name."""
    assert turns_of(tool_choice=given)[0].tool_choice == choice


def test_plain_completions() -> None:
    """One turn for each prompt and answer, neighbours being of one prompt; the text goes to the model as it is."""
    asked = read_fields(CompletionRequest, {"prompt": ["a", "b"], "n": 2, "seed": 5, "logprobs": 0})
    assert asked.choices == 4
    assert [(turn.text, turn.sampling.seed, turn.logprobs) for turn in asked.turns()] == [
        ("a", 5, True),
        ("a", 6, True),
        ("b", 5, True),
        ("b", 6, True),
    ]
    assert read_fields(CompletionRequest, {"prompt": "a"}).turns() == [TurnRequest("", (), text="a", sampling=Sampling(temperature=1.0))]


@pytest.mark.parametrize(
    ("value", "fault"),
    [
        ({}, "prompt"),
        ({"prompt": []}, "prompt"),
        ({"prompt": [1, 2]}, "prompt[0]"),
        ({"prompt": [[1, 2]]}, "prompt[0]"),
        ({"prompt": "a", "echo": True}, "echo"),
        ({"prompt": "a", "best_of": 2}, "best_of"),
        ({"prompt": "a", "logprobs": 6}, "logprobs"),
        ({"prompt": "a", "suffix": "b"}, "suffix"),
        ({"prompt": "a", "messages": HI}, "messages"),
    ],
)
def test_what_plain_completions_refuse(value: Any, fault: str) -> None:
    """With the field's path."""
    assert fault in faults_of(CompletionRequest, value)


@pytest.mark.parametrize(
    ("kind", "value", "field"),
    [
        (ChatRequest, {"messages": HI, "logprobs": True, "top_logprobs": 2}, "top_logprobs"),
        (CompletionRequest, {"prompt": "a", "logprobs": 5}, "logprobs"),
    ],
)
def test_alternatives_to_a_token_are_not_served(kind: Any, value: Any, field: str) -> None:
    """They are an option of the API, in its range; the refusal says that workers have none."""
    with pytest.raises(CallerError, match="chosen token only") as caught:
        read_fields(kind, value).turns()
    assert (caught.value.reason, [it.field for it in caught.value.violations]) == ("OPTION_UNSUPPORTED", [field])


def test_what_clients_keep_of_an_answer_comes_back() -> None:
    """LiteLLM's own fields, what a model thought, marks for caches of others: nothing of it concerns the next answer."""
    mark = {"cache_control": {"type": "ephemeral"}}
    kept = {"reasoning_content": "", "provider_specific_fields": {"refusal": None}, "annotations": [], **mark}
    assert message_of(role="assistant", content="yes", **kept) == Message(Role.ASSISTANT, "yes")
    assert message_of(role="user", content=[{"type": "text", "text": "a", **mark}]) == Message(Role.USER, "a")
    tool = {"type": "function", "function": {"name": "go"}, **mark}
    assert turns_of(tools=[tool], reasoning_effort="high")[0].tools == (Tool("go"),)


def test_unknown_options_are_dropped_by_name() -> None:
    """At the top of a body alone: a message's fields say what is asked."""
    body = {"messages": HI, "logit_processor": 1, "a": None, "stop": "x"}
    assert drop_unknown(ChatRequest, body) == ["a", "logit_processor"]
    assert body == {"messages": HI, "stop": "x"}
    assert drop_unknown(ChatRequest, []) == []


def test_options_of_the_template_become_the_turns() -> None:
    """Names that a template could not read are refused."""
    assert turns_of(chat_template_kwargs={"enable_thinking": False})[0].template_options == {"enable_thinking": False}
    assert "chat_template_kwargs" in str(faults_of(ChatRequest, {"messages": HI, "chat_template_kwargs": {"a b": 1}}))

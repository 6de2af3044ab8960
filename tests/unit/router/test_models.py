"""The models a caller may name, and how their prompts are made."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor, Future
from pathlib import Path
from typing import Any

import pytest

from router.errors import CallerError, Code
from router.model import Message, Role, ToolCall, TurnRequest
from router.model_config import Alias, ModelConfig
from router.models import Model, Models
from router.text.tokenizer import Tokenizer
from router.token_turn import TokenTurn
from router.turn import Turn
from tests.models import build_sentencepiece_model

LONG = 20_000
CONTEXT = 3 * LONG


class CountingExecutor(Executor):
    """Runs work at once and counts it."""

    def __init__(self) -> None:
        self.calls = 0

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        self.calls += 1
        future: Future[Any] = Future()
        future.set_result(fn(*args, **kwargs))
        return future


def make_model(folder: Path, executor: Executor, name: str = "test") -> Model:
    tokenizer = Tokenizer.load(folder)
    tokenizer.context = CONTEXT
    return Model(ModelConfig(name=name, path=folder, workers=("127.0.0.1:1",)), tokenizer, executor)


def render(model: Model, ids: list[int]) -> str:
    """The prompt's text, control tokens by their names."""
    names = dict(enumerate(("<|endoftext|>", "<|im_start|>", "<|im_end|>")))
    return b"".join(names[token].encode() if token in names else model.tokenizer.token_bytes[token] for token in ids).decode()


async def test_a_conversation_becomes_the_templates_prompt(chatml: Path) -> None:
    """Roles, contents and tool calls reach the template, which asks for the assistant's next message."""
    model = make_model(chatml, CountingExecutor())
    messages = [
        Message(Role.SYSTEM, "be kind"),
        Message(Role.USER, "hi"),
        Message(Role.ASSISTANT, None, (ToolCall("7", "look", '{"at": 1}'),)),
        Message(Role.TOOL, "seen", tool_call_id="7"),
    ]
    assert render(model, await model.encode(messages)) == (
        "<|im_start|>system\nbe kind<|im_end|>\n"
        "<|im_start|>user\nhi<|im_end|>\n"
        '<|im_start|>assistant\n<tool_call>\n{"name": "look", "arguments": {"at": 1}}\n</tool_call><|im_end|>\n'
        "<|im_start|>tool\nseen<|im_end|>\n"
        "<|im_start|>assistant\n"
    )


async def test_short_prompts_are_made_at_once(chatml: Path) -> None:
    """A hop to a thread would cost more than it spares."""
    executor = CountingExecutor()
    await make_model(chatml, executor).encode([Message(Role.USER, "hi")])
    assert executor.calls == 0


@pytest.mark.parametrize(
    "message",
    [
        Message(Role.USER, "x" * LONG),
        Message(Role.ASSISTANT, None, (ToolCall("7", "look", f'{{"at": "{"x" * LONG}"}}'),)),
    ],
    ids=["content", "tool call"],
)
async def test_long_prompts_are_made_in_the_executor(chatml: Path, message: Message) -> None:
    """The event loop serves others meanwhile, whatever makes the prompt long; the tokens are the same."""
    executor = CountingExecutor()
    ids = await make_model(chatml, executor).encode([message])
    assert executor.calls == 1
    assert len(ids) > LONG


async def test_a_text_is_a_prompt_without_a_template(chatml: Path) -> None:
    """As it is, at once when it is short and in the executor when it is long."""
    executor = CountingExecutor()
    model = make_model(chatml, executor)
    assert render(model, await model.encode_text("hi <|im_end|>")) == "hi <|im_end|>"
    assert executor.calls == 0
    assert len(await model.encode_text("x" * LONG)) == LONG
    assert executor.calls == 1


@pytest.mark.parametrize("filler", ["x", "x" * LONG], ids=["inline", "executor"])
async def test_a_conversation_the_template_refuses_is_the_callers_fault(tmp_path: Path, filler: str) -> None:
    """A model whose roles must alternate refuses two user messages, and the error shows none of their text."""
    model = make_model(build_sentencepiece_model(tmp_path), CountingExecutor())
    with pytest.raises(CallerError) as refused:
        await model.encode([Message(Role.USER, filler), Message(Role.USER, filler)])
    assert refused.value.reason == "FIELD_INVALID"
    assert refused.value.violations[0].field == "messages"
    assert "Roles must alternate" in refused.value.message
    assert "xx" not in refused.value.message


async def test_a_prompt_may_come_in_three_forms(chatml: Path) -> None:
    """Messages for the template, a text as it is, and ids, which are not read at all."""
    model = make_model(chatml, CountingExecutor())
    told = await model.read_prompt(TurnRequest("", [Message(Role.USER, "hi")]))
    assert render(model, list(told)).endswith("hi<|im_end|>\n<|im_start|>assistant\n")
    text = await model.read_prompt(TurnRequest("", (), text="hi<|im_end|>"))
    assert (render(model, list(text)), 2 in text) == ("hi<|im_end|>", False)
    assert await model.read_prompt(TurnRequest("", (), input_ids=[2, 5])) == [2, 5]


@pytest.mark.parametrize("ids", [[], [-1], [1, 266]])
async def test_ids_outside_the_vocabulary_are_refused(chatml: Path, ids: list[int]) -> None:
    """Engines would take them in silence."""
    with pytest.raises(CallerError, match="input_ids: must hold at least one token id, each from 0 to 265"):
        await make_model(chatml, CountingExecutor()).read_prompt(TurnRequest("", (), input_ids=ids))


def test_the_answer_has_the_form_of_the_prompt(chatml: Path) -> None:
    """Ids for ids, text for the others."""
    model = make_model(chatml, CountingExecutor())
    assert isinstance(model.open_turn(TurnRequest("", (), input_ids=[1]), None, 1), TokenTurn)
    assert isinstance(model.open_turn(TurnRequest("", (), text="hi"), None, 1), Turn)


def test_models_are_found_by_name(chatml: Path) -> None:
    """The first is the default, which an empty name means; an alias has its models in its own order."""
    first, second = (make_model(chatml, CountingExecutor(), name) for name in ("first", "second"))
    models = Models([first, second], [Alias(name="auto", models=("second", "first"))])
    assert [models.find(name).models for name in ("second", "first", "")] == [(second,), (first,), (first,)]
    assert models.find("auto").models == (second, first)
    assert [models.find(name).name for name in ("", "auto")] == ["first", "auto"]
    assert list(models) == [first, second]


def test_an_unknown_model_is_not_echoed(chatml: Path) -> None:
    """The name may be anything, of any length."""
    with pytest.raises(CallerError) as unknown:
        Models([make_model(chatml, CountingExecutor())]).find("secret-name")
    assert (unknown.value.code, unknown.value.reason) == (Code.NOT_FOUND, "MODEL_UNKNOWN")
    assert "secret-name" not in unknown.value.message


@pytest.mark.parametrize(
    "messages",
    [
        [Message(Role.USER, "x" * 4_000_000)],
        [Message(Role.SYSTEM, "x" * 2_000_000), Message(Role.TOOL, "x" * 2_000_000), Message(Role.USER, "x")],
        [Message(Role.USER, "x" * 1_000)] * 4_000,
    ],
    ids=["one", "several", "many"],
)
async def test_a_hopeless_prompt_is_neither_rendered_nor_tokenized(chatml: Path, messages: list[Message], monkeypatch: Any) -> None:
    """It has more characters than the model has room for, at the most that one token stands for."""
    executor = CountingExecutor()
    model = make_model(chatml, executor)
    monkeypatch.setattr(Tokenizer, "encode_chat", None)
    with pytest.raises(CallerError, match="maximum context length is 60000 tokens") as refused:
        await model.encode(messages)
    assert (refused.value.reason, executor.calls) == ("PROMPT_TOO_LONG", 0)


async def test_blanks_and_what_the_model_said_do_not_make_a_prompt_hopeless(chatml: Path) -> None:
    """Templates leave out the one at the ends and parts of the other, so these are rendered first."""
    model = make_model(chatml, CountingExecutor())
    with pytest.raises(CallerError, match="at least") as refused:
        await model.encode([Message(Role.USER, "x"), Message(Role.ASSISTANT, "x" * 4_000_000)])
    assert refused.value.reason == "PROMPT_TOO_LONG"
    with pytest.raises(CallerError, match="at least"):
        await model.encode([Message(Role.USER, " " * 4_000_000 + "x")])

"""The cascade: which requests the default predictor takes for hard, and which models are tried for them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.degradation.cascade import WEIGHTS, FeaturePredictor, order_models, read_features
from router.model import Guide, GuideKind, Message, Role, TurnRequest
from router.tools import Tool, ToolChoice, ToolMode

PREDICTOR = FeaturePredictor()


def ask(*texts: str, system: str = "") -> TurnRequest:
    """A conversation whose questions these are."""
    said = [message for text in texts for message in (Message(Role.USER, text), Message(Role.ASSISTANT, "well"))][:-1]
    return TurnRequest("auto", [Message(Role.SYSTEM, system)] * bool(system) + said)


@pytest.mark.parametrize(
    "text",
    [
        "Hello!",
        "What is the capital of France?",
        "Who wrote Hamlet?",
        "Tell me a joke about cats.",
        "Give me a synonym of happy.",
        "Thanks, that helps.",
    ],
)
def test_chat_and_plain_facts_are_easy(text: str) -> None:
    """The small model knows them."""
    assert PREDICTOR.judge(ask(text)) < 0.5


@pytest.mark.parametrize(
    "text",
    [
        "What is 17 + 25?",
        "Solve x^2 = 9 for x.",
        "How many weeks are in 98 days?",
        "Write a Python function that reverses a list.",
        "```\nfor (;;) { }\n```\nWhat is wrong?",
        "SELECT name FROM users does not use the index",
        "Translate 'good morning' to Hindi.",
        "Compare TCP and QUIC.",
        "Think step by step: who is the eldest?",
        "word " * 1500,
    ],
)
def test_code_maths_tasks_and_long_texts_are_hard(text: str) -> None:
    """What small models are known to fail at."""
    assert PREDICTOR.judge(ask(text)) > 0.5


def test_tools_are_hard_unless_they_are_switched_off() -> None:
    """A model that must not call them is not told of them."""
    request = replace(ask("What is the weather in Paris?"), tools=[Tool("look")])
    assert PREDICTOR.judge(request) > 0.5
    assert PREDICTOR.judge(replace(request, tool_choice=ToolChoice(ToolMode.NONE))) < 0.5


def test_instructions_of_the_system_do_not_count() -> None:
    """They are the same for all that an application asks."""
    assert PREDICTOR.judge(ask("Hello!", system="Solve equations in Python. " * 500)) == PREDICTOR.judge(ask("Hello!"))


def test_only_the_last_question_is_searched() -> None:
    """A thank-you after code is easy again."""
    assert PREDICTOR.judge(ask("Write a Python function.", "Thanks!")) < 0.5


def test_of_a_long_question_the_ends_are_searched() -> None:
    """The instruction stands before or behind what it is about; and the time that it takes is bounded."""
    filler = "word " * 200_000
    for text in (f"Translate this: {filler}", f"{filler} Translate this."):
        assert read_features(ask(text))["task"] == 1.0
    assert read_features(ask(f"{filler} Translate this. {filler}"))["task"] == 0.0


texts = st.text(alphabet="ab 1+=`\n", max_size=60)
requests = st.builds(
    TurnRequest,
    st.just("auto"),
    st.lists(st.builds(Message, st.sampled_from([*Role, None]), st.one_of(st.none(), texts)), max_size=6),
    max_output_tokens=st.one_of(st.none(), st.integers(0, 2**32 - 1)),
)


@given(requests)
def test_any_request_has_a_hardness(request: TurnRequest) -> None:
    """From 0 to 1, always the same; all features are known to the table and none is negative."""
    features = read_features(request)
    assert features.keys() | {"bias"} == WEIGHTS.keys()
    assert min(features.values()) >= 0
    assert 0 <= PREDICTOR.judge(request) <= 1
    assert PREDICTOR.judge(request) == PREDICTOR.judge(replace(request))


@given(requests)
def test_more_to_do_is_never_easier(request: TurnRequest) -> None:
    """A form, tools, a longer answer, another question."""
    asked = PREDICTOR.judge(request)
    harder = [
        replace(request, guide=Guide(GuideKind.JSON)),
        replace(request, tools=[Tool("look")]),
        replace(request, max_output_tokens=2**32 - 1),
        replace(request, messages=[Message(Role.USER, "and before"), *request.messages]),
    ]
    assert all(PREDICTOR.judge(it) >= asked for it in harder)


@given(st.integers(1, 5), st.floats(0.0, 1.0))
def test_models_are_tried_from_the_fitting_one_up(count: int, hardness: float) -> None:
    """Some model always, the flagship at last, and a harder request never begins with a smaller one."""
    models = list(range(count))
    order = order_models(models, hardness)
    assert list(order) == models[order[0] :]
    assert order_models(models, 0.0)[0] == 0
    assert order_models(models, 1.0)[0] == count - 1
    assert order_models(models, min(1.0, hardness + 0.1))[0] >= order[0]

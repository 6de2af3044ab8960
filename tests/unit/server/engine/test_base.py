"""What every engine refuses before a request gets near it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from server.engine.base import Description, Finish, Request, RequestRefused, Sampling, check_request

ENGINE = Description("small", "scripted", "fast", 100, 10, (2,), 8, 50, 32)
REQUEST = Request(1, [5] * 20, 30)


def refusal(request: Request, engine: Description = ENGINE) -> str | None:
    """Why the request is refused; None when it is taken."""
    try:
        check_request(request, engine)
    except RequestRefused as refused:
        return str(refused)
    return None


@pytest.mark.parametrize(
    ("prompt", "expected"),
    [
        ([0], None),
        ([9], None),
        ([], "input_ids: must hold at least one token id"),
        ([5, 10], "input_ids: token ids must be from 0 to 9"),
        ([-1, 5], "input_ids: token ids must be from 0 to 9"),
    ],
)
def test_prompts(prompt: list[int], expected: str | None) -> None:
    """Engines take ids outside the vocabulary silently."""
    assert refusal(replace(REQUEST, prompt=prompt)) == expected


@pytest.mark.parametrize(("most", "expected"), [(1, None), (0, "request_output_len: must be at least 1")])
def test_an_answer_has_a_length(most: int, expected: str | None) -> None:
    """Some engines take none as "without limit"."""
    assert refusal(replace(REQUEST, max_new_tokens=most)) == expected


@pytest.mark.parametrize(("blocks", "room"), [(50, 100), (2, 64)], ids=["context", "KV cache"])
def test_prompt_and_answer_fit(blocks: int, room: int) -> None:
    """Into the model's context and into the KV cache: what alone outgrows the cache would take every other sequence along."""
    engine = replace(ENGINE, total_blocks=blocks)
    assert refusal(replace(REQUEST, max_new_tokens=room - 20), engine) is None
    refused = f"request_output_len: prompt (20) and output ({room - 19}) exceed {room} tokens"
    assert refusal(replace(REQUEST, max_new_tokens=room - 19), engine) == refused


@pytest.mark.parametrize(("end_id", "taken"), [(0, True), (9, True), (10, False), (-1, False)])
def test_end_tokens_are_tokens(end_id: int, taken: bool) -> None:
    """A negative one, which TensorRT-LLM takes as "none", is refused by name."""
    assert refusal(replace(REQUEST, end_ids=(end_id,))) == (None if taken else "end_id: must be from 0 to 9")


@pytest.mark.parametrize(
    ("name", "taken", "refused"),
    [
        ("temperature", (0.0, 100.0), (-0.1, 100.1)),
        ("top_k", (0, 2**31 - 1), (-1, 2**31)),
        ("top_p", (0.001, 1.0), (0.0, 1.1)),
        ("min_p", (0.0, 0.99), (-0.1, 1.0)),
        ("repetition_penalty", (0.001, 100.0), (0.0, 100.1)),
        ("presence_penalty", (-2.0, 2.0), (-2.1, 2.1)),
        ("frequency_penalty", (-2.0, 2.0), (-2.1, 2.1)),
        ("min_tokens", (0, 30), (-1, 31)),
        ("seed", (0, 2**64 - 1), ()),
    ],
)
def test_sampling(name: str, taken: tuple[Any, ...], refused: tuple[Any, ...]) -> None:
    """Each field has its range, and what is no number is in none; what is not given is not checked."""
    for value in (None, *taken):
        assert refusal(replace(REQUEST, sampling=Sampling(**{name: value}))) is None
    for value in (*refused, float("nan")) if refused else ():
        message = refusal(replace(REQUEST, sampling=Sampling(**{name: value})))
        assert message is not None
        assert message.startswith(f"{name}: must be ")


def test_a_refusal_holds_no_prompt() -> None:
    """It names the option and its bounds, whatever is wrong."""
    secret = 987_654
    faults = [replace(REQUEST, prompt=[secret]), replace(REQUEST, prompt=[1, -secret]), replace(REQUEST, prompt=[5] * 101)]
    for message in map(refusal, faults):
        assert message is not None
        assert str(secret) not in message


def test_finish_codes_are_the_executors() -> None:
    """TensorRT-LLM numbers its own, and ours come after them."""
    names = ("RUNNING", "END_ID", "STOP_WORDS", "LENGTH", "TIMED_OUT", "CANCELLED")
    assert [Finish[name].value for name in names] == [0, 1, 2, 3, 4, 5]

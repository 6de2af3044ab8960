"""Requests as the OpenVINO library's own configuration."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from server.engine.base import Description, Request, RequestRefused, Sampling, check_request
from server.engine.openvino import generation_config

ENGINE = Description("small", "openvino", "fast", 100, 10, (2, 0), 8, 50, 32)
REQUEST = Request(1, [5], 9)
UNLIMITED = 2**64 - 1


def configure(**sampling: Any) -> Any:
    return generation_config(replace(REQUEST, sampling=Sampling(**sampling)), ENGINE.end_ids)


@pytest.mark.parametrize(
    ("sampling", "greedy"),
    [
        (Sampling(), True),
        (Sampling(temperature=0.0), True),
        (Sampling(temperature=0.0, top_p=0.5, seed=1), True),
        (Sampling(top_k=1, temperature=1.0), True),
        (Sampling(repetition_penalty=1.1, presence_penalty=1.0, frequency_penalty=1.0, min_tokens=2), True),
        (Sampling(temperature=1.0), False),
        (Sampling(top_k=0), False),
        (Sampling(top_p=0.5), False),
        (Sampling(min_p=0.1), False),
        (Sampling(seed=0), False),
    ],
)
def test_decoding_is_greedy_unless_something_asks_to_sample(sampling: Sampling, greedy: bool) -> None:
    """Temperature 0 and top-k 1 mean greedy whatever else is given; penalties alone do not mean sampling."""
    assert sampling.is_greedy is greedy
    assert generation_config(replace(REQUEST, sampling=sampling), ENGINE.end_ids).do_sample is not greedy


def test_the_answers_length_and_ends_are_the_requests() -> None:
    """Without end ids of its own, the model's; the library must neither add a template nor a log probability."""
    config = generation_config(REQUEST, ENGINE.end_ids)
    assert (config.max_new_tokens, config.eos_token_id, set(config.stop_token_ids)) == (9, 2, {2, 0})
    assert (config.apply_chat_template, config.logprobs) == (False, 0)
    own = generation_config(replace(REQUEST, end_ids=(7,), log_probs=True), ENGINE.end_ids)
    assert (own.eos_token_id, set(own.stop_token_ids), own.logprobs) == (7, {7}, 1)


def test_sampling_fields_are_passed_on() -> None:
    """Each under the library's name."""
    config = configure(temperature=0.5, top_k=4, top_p=0.75, min_p=0.25, seed=7)
    assert (config.temperature, config.top_k, config.top_p, config.min_p, config.rng_seed) == (0.5, 4, 0.75, 0.25, 7)


@pytest.mark.parametrize("sampling", [{}, {"temperature": 1.0}], ids=["greedy", "sampling"])
def test_penalties_count_in_both_ways_of_decoding(sampling: dict[str, float]) -> None:
    """They change the logits, not how a token is chosen from them."""
    config = configure(repetition_penalty=1.5, presence_penalty=-1.0, frequency_penalty=0.5, min_tokens=3, **sampling)
    penalties = (config.repetition_penalty, config.presence_penalty, config.frequency_penalty, config.min_new_tokens)
    assert penalties == (1.5, -1.0, 0.5, 3)


def test_top_k_zero_is_no_limit() -> None:
    """For TensorRT-LLM and our callers; the library has another number for it."""
    assert configure(top_k=0).top_k == UNLIMITED


def test_greedy_decoding_is_left_alone() -> None:
    """A temperature of zero would be refused by the library."""
    assert configure(temperature=0.0, top_p=0.5).temperature == 1.0


def test_without_a_seed_no_two_answers_are_alike() -> None:
    """The library's own default seed is fixed; a seed of zero is one."""
    assert configure(temperature=1.0).rng_seed != configure(temperature=1.0).rng_seed
    assert configure(temperature=1.0, seed=0).rng_seed == 0


def optional(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | values


REQUESTS = st.builds(
    Request,
    number=st.just(1),
    prompt=st.just([5]),
    max_new_tokens=st.integers(-1, 20),
    sampling=st.builds(
        Sampling,
        temperature=optional(st.floats(-1, 200, width=32)),
        top_k=optional(st.integers(-1, 2**31 - 1)),
        top_p=optional(st.floats(-1, 2, width=32)),
        min_p=optional(st.floats(-1, 2, width=32)),
        seed=optional(st.integers(0, 2**64 - 1)),
        repetition_penalty=optional(st.floats(-1, 200, width=32)),
        presence_penalty=optional(st.floats(-3, 3, width=32)),
        frequency_penalty=optional(st.floats(-3, 3, width=32)),
        min_tokens=optional(st.integers(-1, 30)),
    ),
    end_ids=st.lists(st.integers(-1, 11), max_size=2).map(tuple),
    log_probs=st.booleans(),
)


@settings(deadline=None)
@given(REQUESTS)
def test_what_the_checks_take_the_library_takes(request: Request) -> None:
    """It looks when a request is added, inside a step; refused there, a request would take the engine along."""
    with suppress(RequestRefused):
        check_request(request, ENGINE)
        generation_config(request, ENGINE.end_ids).validate()

"""What requests ask, in the words of the pipeline."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from router.errors import CallerError, Code
from router.model import Guide, GuideKind, Priority, Sampling
from router.transport.kserve.asked import read_asked
from tests.unit.router.transport.kserve.requests import END_ID, TOKENS_MODEL, ask_text, ask_tokens, flag, parameter, request_of


def test_a_request_for_token_ids_is_a_turn() -> None:
    """Its prompt is the ids, whatever the model's chat template is."""
    asked = ask_tokens(id="7")
    assert (asked.id, asked.turn.model, asked.turn.input_ids, asked.turn.max_output_tokens) == ("7", "test", [5, 6, 7], 16)
    assert (asked.turn.text, asked.turn.sampling, asked.stop) == (None, Sampling(), False)


def test_a_request_for_text_is_a_turn() -> None:
    """Its prompt is continued as it is; stop words that are empty are none."""
    turn = ask_text(("stop_words", "BYTES", [1, 3], ["", "###", ""]), ("bad_words", "BYTES", [1, 1], [""])).turn
    assert (turn.text, turn.input_ids, turn.stop, turn.max_output_tokens) == ("hi", None, ("###",), 16)


def test_padding_is_no_part_of_the_prompt() -> None:
    """`input_lengths` tells where it begins; it cannot lie behind the end."""
    assert ask_tokens(("input_lengths", "INT32", [1, 1], [2])).turn.input_ids == [5, 6]
    for length in (-1, 4):
        with pytest.raises(CallerError, match="input_lengths: must be from 0 to 3"):
            ask_tokens(("input_lengths", "INT32", [1, 1], [length]))


def test_sampling_keeps_what_was_not_given() -> None:
    """Zero is zero, but for top-p, where TensorRT-LLM counts it as not given; the names of older releases are known."""
    told = ask_tokens(
        ("temperature", "FP32", [1, 1], [0.5]),
        ("runtime_top_k", "INT32", [1, 1], [0]),
        ("runtime_top_p", "FP32", [1, 1], [0.0]),
        ("random_seed", "UINT64", [1, 1], [2**63]),
        ("min_length", "INT32", [1, 1], [3]),
    ).turn
    assert told.sampling == Sampling(temperature=0.5, top_k=0, seed=2**63)
    assert told.min_output_tokens == 3
    assert ask_text(("top_k", "INT32", [1, 1], [4]), ("top_p", "FP32", [1, 1], [0.5])).turn.sampling == Sampling(top_k=4, top_p=0.5)


@pytest.mark.parametrize(
    ("rows", "words"),
    [([1, 2, 3, 1, 3, -1], [[1], [2, 3]]), ([1, 2, 2, -1], [[1, 2]]), ([9, 9, -1, -1], []), ([], [])],
)
def test_stop_words_of_ids_are_read(rows: list[int], words: list[list[int]]) -> None:
    """TensorRT-LLM's layout: ids in a row, then where each word ends."""
    assert ask_tokens(("stop_words_list", "INT32", [1, 2, len(rows) // 2], rows)).turn.stop_ids == words


@pytest.mark.parametrize("rows", [[1, 2, 2, 1], [1, 2, 1, 3], [1, 2, 0, 1], [1, 2, 1, 1]])
def test_stop_words_whose_ends_do_not_rise_are_refused(rows: list[int]) -> None:
    """They mean nothing."""
    with pytest.raises(CallerError, match="stop_words_list: its second row"):
        ask_tokens(("stop_words_list", "INT32", [1, 2, 2], rows))


def test_bad_words_are_refused() -> None:
    """By name; a list without words is none."""
    assert ask_tokens(("bad_words_list", "INT32", [1, 2, 1], [0, -1])).turn
    refusals: list[Callable[[], object]] = [
        lambda: ask_tokens(("bad_words_list", "INT32", [1, 2, 1], [5, 1])),
        lambda: ask_text(("bad_words", "BYTES", [1, 1], ["x"])),
    ]
    for refused in refusals:
        with pytest.raises(CallerError) as told:
            refused()
        assert (told.value.code, told.value.reason) == (Code.UNIMPLEMENTED, "OPTION_UNSUPPORTED")


def test_an_end_id_may_only_be_the_models_own() -> None:
    """Another one would have to change what workers stop at."""
    assert ask_tokens(("end_id", "INT32", [1, 1], [END_ID])).turn
    for other in (-1, 50):
        with pytest.raises(CallerError, match="end_id: answers end with the model's own"):
            ask_tokens(("end_id", "INT32", [1, 1], [other]))


def test_a_guide_has_a_kind() -> None:
    """One of TensorRT-LLM's four; JSON needs no text."""
    kind = ("guided_decoding_guide_type", "BYTES", [1, 1], ["regex"])
    assert ask_tokens(kind, ("guided_decoding_guide", "BYTES", [1, 1], ["a+"])).turn.guide == Guide(GuideKind.REGEX, "a+")
    assert ask_text(("guided_decoding_guide_type", "BYTES", [1, 1], ["json"])).turn.guide == Guide(GuideKind.JSON)
    with pytest.raises(CallerError, match="guided_decoding_guide_type: must be one of json, json_schema, regex, ebnf_grammar"):
        ask_text(("guided_decoding_guide_type", "BYTES", [1, 1], ["yaml"]))


def test_the_prompt_is_repeated_as_tensorrt_llm_does() -> None:
    """In an answer that is not streamed, unless the caller does not want it."""
    assert ask_tokens().form.echo
    assert not ask_tokens(flag("exclude_input_in_output")).form.echo
    assert not ask_tokens(flag("streaming")).form.echo
    assert ask_tokens(flag("streaming")).form.streaming
    assert ask_text(flag("stream")).form.streaming


@pytest.mark.parametrize(
    ("member", "level", "priority"),
    [
        ("uint64_param", 0, Priority.INTERACTIVE),
        ("uint64_param", 1, Priority.INTERACTIVE),
        ("int64_param", 2, Priority.STANDARD),
        ("uint64_param", 3, Priority.BATCH),
        ("uint64_param", 2**64 - 1, Priority.BATCH),
    ],
)
def test_tritons_priorities_are_known(member: str, level: int, priority: Priority) -> None:
    """1 is its most urgent, 0 its default."""
    assert ask_tokens(parameters=parameter("priority", **{member: level})).turn.priority is priority


def test_tritons_timeout_is_for_the_queue() -> None:
    """In microseconds; 0 is none."""
    assert ask_tokens(parameters=parameter("timeout", int64_param=1_500_000)).turn.max_wait_s == 1.5
    assert ask_tokens(parameters=parameter("timeout", int64_param=0)).turn.max_wait_s is None


@pytest.mark.parametrize("name", ["priority", "timeout", "triton_enable_empty_final_response"])
def test_a_parameter_of_another_type_is_refused(name: str) -> None:
    """By name; parameters that mean nothing here are left alone, as in Triton, and reach no worker."""
    with pytest.raises(CallerError) as refused:
        ask_tokens(parameters=parameter(name, string_param="1"))
    assert refused.value.violations[0].field == name
    assert ask_tokens(parameters=parameter("op", string_param="attach")).turn


def test_a_stop_request_may_be_as_nvidias_client_sends_it() -> None:
    """With one dummy id, and zero lengths."""
    request = request_of(
        ("input_ids", "INT32", [1, 1], [0]),
        ("input_lengths", "INT32", [1, 1], [0]),
        ("request_output_len", "INT32", [1, 1], [0]),
        flag("stop"),
    )
    assert read_asked(request, TOKENS_MODEL).stop

"""A whole answer: gathered from the events of its turns, and no answer at all when one of them fails."""

from __future__ import annotations

import asyncio

import pytest

from router.errors import RouterError, WorkerError, engine_failed
from router.model import Failed, Finished, FinishReason, Logprobs, Started, TextDelta, TokenLogprob, Usage
from router.tools import ToolCallDelta
from router.transport.http.forms import CHAT, COMPLETION
from router.transport.http.whole import WholeAnswer


async def test_choices_are_gathered() -> None:
    """Texts are joined, counts of all choices are summed, log probabilities are kept in order."""
    answer = WholeAnswer(2, CHAT)
    for index in (1, 0):
        answer.put(index, [Started("m", "w", 5, 100)])
        answer.put(index, [TextDelta("a"), Logprobs([TokenLogprob(1, b"a", -1.0)])])
        answer.put(index, [TextDelta("b"), Logprobs([TokenLogprob(2, b"b", -2.0)])])
        answer.put(index, [Usage(5, 2, 3), Finished(FinishReason.BUDGET)])
    await answer.wait()
    told = answer.choices()
    assert [(it["index"], it["message"]["content"], it["finish_reason"]) for it in told["choices"]] == [
        (0, "ab", "length"),
        (1, "ab", "length"),
    ]
    assert [it["logprob"] for it in told["choices"][0]["logprobs"]["content"]] == [-1.0, -2.0]
    assert told["usage"] == {
        "prompt_tokens": 10,
        "completion_tokens": 4,
        "total_tokens": 14,
        "prompt_tokens_details": {"cached_tokens": 6},
    }


@pytest.mark.parametrize(("reason", "calls"), [(FinishReason.TOOL_CALLS, 1), (FinishReason.LENGTH, 0)])
async def test_calls_are_told_if_they_are_whole(reason: FinishReason, calls: int) -> None:
    """A call that was cut is not one to carry out."""
    answer = WholeAnswer(1, CHAT)
    answer.put(0, [Started("m", "w", 5, 100)])
    answer.put(0, [ToolCallDelta(0, "c0", "look", '{"x"'), ToolCallDelta(0, arguments=":1}")])
    answer.put(0, [Usage(5, 2), Finished(reason)])
    await answer.wait()
    (choice,) = answer.choices()["choices"]
    call = {"id": "c0", "type": "function", "function": {"name": "look", "arguments": '{"x":1}'}}
    assert choice["message"].get("tool_calls", []) == [call] * calls
    assert choice["message"]["content"] == (None if calls else "")
    assert choice["finish_reason"] == reason.value


async def test_an_empty_answer_is_an_answer() -> None:
    """The model may end at once."""
    answer = WholeAnswer(1, COMPLETION)
    answer.put(0, [Started("m", "w", 5, 100)])
    answer.put(0, [Usage(5, 0), Finished(FinishReason.STOP)])
    await answer.wait()
    assert answer.choices()["choices"] == [{"index": 0, "text": "", "logprobs": None, "finish_reason": "stop"}]


async def test_the_first_failure_ends_it() -> None:
    """Whoever waits hears of it without waiting for the other choices; what comes afterwards changes nothing."""
    answer = WholeAnswer(2, CHAT)
    answer.put(0, [Failed(engine_failed())])
    answer.put(0, [Finished(FinishReason.STOP)])
    with pytest.raises(WorkerError, match="the engine failed"):
        async with asyncio.timeout(1.0):
            await answer.wait()


async def test_a_cancelled_turn_is_no_answer() -> None:
    """A part of a text is never given out as if it were all."""
    answer = WholeAnswer(1, CHAT)
    answer.put(0, [TextDelta("a"), Usage(5, 1), Finished(FinishReason.CANCELLED)])
    with pytest.raises(RouterError):
        await answer.wait()

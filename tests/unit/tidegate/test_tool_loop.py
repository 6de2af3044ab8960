"""The tools loop when there is no whole answer."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from tidegate import TooManyRounds
from tidegate.v1.chat_service_pb2 import ConverseResponse
from tidegate.v1.event_pb2 import FINISH_REASON_TOOL_CALLS, Event, Finished, ToolCallDelta

from tests.unit.tidegate.scripted_router import Rpc, ScriptedRouter, connect, finished, frame, ready, started, text


def weather(city: str) -> str:
    """The weather in a city."""
    return "rain"


async def call_a_tool(rpc: Rpc) -> AsyncIterator[ConverseResponse]:
    await rpc.hear("setup")
    yield ready()
    await rpc.hear("start")
    call = ToolCallDelta(call_id="c", name="weather", arguments_json='{"city": "Oslo"}')
    end = Finished(finish_reason=FINISH_REASON_TOOL_CALLS)
    yield frame(2, started(), text("I look"), Event(turn=1, tool_call_delta=call), Event(turn=1, finished=end))
    await rpc.hear_half_close()


async def test_a_loop_that_had_too_many_rounds_has_no_answer() -> None:
    """Its text raises the error, however often it is asked for."""
    async with connect(ScriptedRouter(call_a_tool)) as client:
        loop = client.run_tools("hi", tools=[weather], max_rounds=1)
        for _ in range(2):
            with pytest.raises(TooManyRounds):
                await loop.text()


async def test_a_loop_that_was_left_between_two_rounds_has_no_answer() -> None:
    """What the model said before its call is not one, though that round has ended; what it says without a call is."""

    async def answer(rpc: Rpc) -> AsyncIterator[ConverseResponse]:
        await rpc.hear("setup")
        yield ready()
        await rpc.hear("start")
        yield frame(2, started(), text("rain"), finished())
        await rpc.hear_half_close()

    async with connect(ScriptedRouter(call_a_tool, answer)) as client:
        loops = [client.run_tools("hi", tools=[weather]) for _ in range(2)]
        for loop in loops:
            async for event in loop:
                if event.HasField("finished"):
                    break
        with pytest.raises(RuntimeError, match="left before its end"):
            await loops[0].text()
        assert await loops[1].text() == "rain"

"""Bad input gets a precise status that names the field, and costs nobody but the one who sent it: the stream or the server stays usable."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration
from tidegate import Client, TidegateError, user
from tidegate.v1.chat_service_pb2 import (
    CancelTurn,
    CompleteRequest,
    ConverseRequest,
    CountTokensRequest,
    Setup,
    StartTurn,
    StreamRequest,
    ToolResults,
)
from tidegate.v1.event_pb2 import FINISH_REASON_STOP
from tidegate.v1.turn_pb2 import (
    ROLE_ASSISTANT,
    ROLE_USER,
    Message,
    ResponseFormat,
    Sampling,
    Tool,
    ToolCall,
    ToolChoice,
    TurnSpec,
)

from tests.bench.calls import failure_of
from tests.bench.router import run_router
from tests.bench.worker import Worker

SETUP = ConverseRequest(setup=Setup())
GOOD = TurnSpec(messages=[user("hi")])
NOT_UTF8 = b"\x0a\x04\x12\x02\xff\xfe"
"""As a request with a `spec` or `setup`: one that holds a text of bytes that are not UTF-8."""

INVALID = grpc.StatusCode.INVALID_ARGUMENT
Wrong = tuple[grpc.StatusCode, str, list[str]]


def start(turn: int, spec: TurnSpec = GOOD) -> ConverseRequest:
    return ConverseRequest(start=StartTurn(turn=turn, spec=spec))


def wrong(*fields: str) -> Wrong:
    return INVALID, "FIELD_INVALID", list(fields)


def what_is_wrong(error: TidegateError) -> Wrong:
    return error.code, error.reason, list(error.fields)


BAD_TURNS: dict[str, tuple[TurnSpec, Wrong]] = {
    "nothing at all": (TurnSpec(), wrong("messages")),
    "unknown model": (TurnSpec(model="nope", messages=[user("hi")]), (grpc.StatusCode.NOT_FOUND, "MODEL_UNKNOWN", ["model"])),
    "null content": (TurnSpec(messages=[user("hi"), Message(role=ROLE_USER)]), wrong("messages[1].content")),
    "no role": (TurnSpec(messages=[Message(content="hi")]), wrong("messages[0].role")),
    "unknown role": (TurnSpec(messages=[Message(role=99, content="hi")]), wrong("messages[0].role")),  # type: ignore[arg-type]
    "user calls a tool": (
        TurnSpec(messages=[Message(role=ROLE_USER, content="hi", tool_calls=[ToolCall(name="f")])]),
        wrong("messages[0].tool_calls"),
    ),
    "assistant without anything": (TurnSpec(messages=[Message(role=ROLE_ASSISTANT)]), wrong("messages[0].content")),
    "a wait that ended before it began": (TurnSpec(messages=[user("hi")], max_wait=Duration(seconds=-1)), wrong("max_wait")),
    "no tokens wanted": (TurnSpec(messages=[user("hi")], max_output_tokens=0), wrong("max_output_tokens")),
    "prompt over the context": (TurnSpec(messages=[user("x" * 2048)]), (INVALID, "PROMPT_TOO_LONG", ["messages"])),
    "empty stop": (TurnSpec(messages=[user("hi")], stop=["a", ""]), wrong("stop[1]")),
    "hot": (TurnSpec(messages=[user("hi")], sampling=Sampling(temperature=2.1)), wrong("sampling.temperature")),
    "top_p of nothing": (TurnSpec(messages=[user("hi")], sampling=Sampling(top_p=0)), wrong("sampling.top_p")),
    "top_k beyond int32": (TurnSpec(messages=[user("hi")], sampling=Sampling(top_k=2**31)), wrong("sampling.top_k")),
    "tools without names": (TurnSpec(messages=[user("hi")], tools=[Tool(), Tool(name="a b")]), wrong("tools[0].name", "tools[1].name")),
    "tool that is not there": (
        TurnSpec(messages=[user("hi")], tools=[Tool(name="f")], tool_choice=ToolChoice(tool="g")),
        wrong("tool_choice.tool"),
    ),
    "two forms of an answer": (
        TurnSpec(messages=[user("hi")], tools=[Tool(name="f")], response_format=ResponseFormat(regex="a")),
        wrong("response_format"),
    ),
    "several faults": (
        TurnSpec(messages=[Message(role=ROLE_USER)], stop=[""], max_output_tokens=0, sampling=Sampling(seed=1, top_p=1.5)),
        wrong("messages[0].content", "sampling.top_p", "stop[0]", "max_output_tokens"),
    ),
}

BAD_STREAMS: dict[str, tuple[list[ConverseRequest], Wrong]] = {
    "no setup": ([start(1)], (INVALID, "SETUP_MISSING", ["setup"])),
    "cancel before setup": ([ConverseRequest(cancel=CancelTurn(turn=1))], (INVALID, "SETUP_MISSING", ["setup"])),
    "second setup": ([SETUP, SETUP], (INVALID, "SETUP_REPEATED", ["setup"])),
    "empty message": ([SETUP, ConverseRequest()], (INVALID, "MESSAGE_EMPTY", ["message"])),
    "unknown model": (
        [ConverseRequest(setup=Setup(model="nope"))],
        (grpc.StatusCode.NOT_FOUND, "MODEL_UNKNOWN", ["model"]),
    ),
    "bad default": ([ConverseRequest(setup=Setup(sampling=Sampling(temperature=-1)))], wrong("sampling.temperature")),
    "turn number zero": ([SETUP, start(0)], (INVALID, "TURN_NUMBER_INVALID", ["start.turn"])),
    "turn number again": ([SETUP, start(2), start(2)], (INVALID, "TURN_NUMBER_INVALID", ["start.turn"])),
    "turn number falls": ([SETUP, start(2), start(1)], (INVALID, "TURN_NUMBER_INVALID", ["start.turn"])),
    "results nobody waits for": (
        [SETUP, ConverseRequest(tool_results=ToolResults(turn=1))],
        (INVALID, "TURN_UNKNOWN", ["tool_results.turn"]),
    ),
    "five megabytes": ([SETUP, start(1, TurnSpec(messages=[user("x" * 5_000_000)]))], (INVALID, "MESSAGE_TOO_LARGE", ["message"])),
}


async def test_a_bad_turn_fails_and_its_stream_lives(chatml: Path, subtests: pytest.Subtests) -> None:
    """On Converse a bad turn is `failed` with the fields named; the turns before and after it on the stream complete."""
    async with Worker(chatml).running() as worker, run_router(chatml, worker.address) as router, router.stub() as stub:
        for case, (spec, expected) in BAD_TURNS.items():
            with subtests.test(case):
                turns, before = iter((SETUP, start(1), start(2, spec), start(3))), worker.calls
                events = [event async for frame in stub.Converse(turns) for event in frame.events]
                assert worker.calls == before + 2
                ends = {event.turn: event for event in events if event.WhichOneof("event") in ("finished", "failed")}
                assert what_is_wrong(TidegateError(ends[2].failed.status)) == expected
                assert [ends[turn].finished.finish_reason for turn in (1, 3)] == [FINISH_REASON_STOP] * 2


async def test_a_bad_single_turn_ends_its_call(chatml: Path, subtests: pytest.Subtests) -> None:
    """On Complete and Stream a bad turn is the call's status with the fields named; nothing reaches a worker; the next call works."""
    async with Worker(chatml).running() as worker, run_router(chatml, worker.address) as router, router.stub() as stub:
        for case, (spec, expected) in BAD_TURNS.items():
            with subtests.test(case):
                before = worker.calls
                assert what_is_wrong(await failure_of(stub.Complete(CompleteRequest(spec=spec)))) == expected
                assert what_is_wrong(await failure_of(stub.Stream(StreamRequest(spec=spec)))) == expected
                assert worker.calls == before
                assert (await stub.Complete(CompleteRequest(spec=GOOD))).text == "ok"


async def test_a_bad_stream_ends_and_the_connection_lives(chatml: Path, subtests: pytest.Subtests) -> None:
    """A fault of the call ends its stream with a status that names the field; another stream on the same connection works."""
    async with Worker(chatml).running() as worker, run_router(chatml, worker.address) as router, router.client() as client:
        for case, (messages, expected) in BAD_STREAMS.items():
            with subtests.test(case):
                assert what_is_wrong(await failure_of(client.stub.Converse(iter(messages)))) == expected
                assert await answer_of(client) == "ok"


async def answer_of(client: Client) -> str:
    """The answer to a good turn on a new stream."""
    async with client.session() as session:
        return await (await session.start(user("hi"))).text()


RAW_CALLS: dict[str, Callable[[Any], Any]] = {
    "Converse": lambda channel: channel.stream_stream("/tidegate.v1.ChatService/Converse")(iter((NOT_UTF8,))),
    "Stream": lambda channel: channel.unary_stream("/tidegate.v1.ChatService/Stream")(NOT_UTF8),
    "Complete": lambda channel: channel.unary_unary("/tidegate.v1.ChatService/Complete")(NOT_UTF8),
    "CountTokens": lambda channel: channel.unary_unary("/tidegate.v1.ChatService/CountTokens")(b"\x0a\x02\xff\xfe"),
}


async def test_bytes_that_are_not_utf8_are_unreadable(chatml: Path, subtests: pytest.Subtests) -> None:
    """Text that is not UTF-8 is refused as unreadable, with a status of ours, on every method; the connection lives."""
    async with Worker(chatml).running() as worker, run_router(chatml, worker.address) as router:
        for method, call in RAW_CALLS.items():
            with subtests.test(method):
                async with grpc.aio.insecure_channel(router.target) as channel:
                    error = await failure_of(call(channel))
                    assert what_is_wrong(error) == (INVALID, "MESSAGE_UNREADABLE", ["message"])
                    whole: Any = channel.unary_unary("/tidegate.v1.ChatService/Complete")
                    assert b"ok" in await whole(CompleteRequest(spec=GOOD).SerializeToString())


async def test_a_message_of_five_megabytes_is_too_large(chatml: Path) -> None:
    """A message over the limit is refused with the limit named, on every method with one request; the connection lives."""
    large = [user("x" * 5_000_000)]
    async with Worker(chatml).running() as worker, run_router(chatml, worker.address) as router, router.stub() as stub:
        for call in (
            stub.Complete(CompleteRequest(spec=TurnSpec(messages=large))),
            stub.Stream(StreamRequest(spec=TurnSpec(messages=large))),
            stub.CountTokens(CountTokensRequest(messages=large)),
        ):
            error = await failure_of(call)
            assert what_is_wrong(error) == (INVALID, "MESSAGE_TOO_LARGE", ["message"])
            assert "4194304" in error.message
        assert (await stub.Complete(CompleteRequest(spec=GOOD))).text == "ok"


BAD_COUNTS: dict[str, tuple[CountTokensRequest, Wrong]] = {
    "nothing at all": (CountTokensRequest(), wrong("messages")),
    "unknown model": (
        CountTokensRequest(model="nope", messages=[user("hi")]),
        (grpc.StatusCode.NOT_FOUND, "MODEL_UNKNOWN", ["model"]),
    ),
    "null content": (CountTokensRequest(messages=[Message(role=ROLE_USER)]), wrong("messages[0].content")),
    "no role": (CountTokensRequest(messages=[Message(content="hi")]), wrong("messages[0].role")),
}


async def test_a_bad_count_is_refused(chatml: Path, subtests: pytest.Subtests) -> None:
    """CountTokens names what is wrong as turns do, without a worker being up."""
    async with run_router(chatml, wait_up=False) as router, router.stub() as stub:
        for case, (request, expected) in BAD_COUNTS.items():
            with subtests.test(case):
                assert what_is_wrong(await failure_of(stub.CountTokens(request))) == expected
        assert (await stub.CountTokens(CountTokensRequest(messages=[user("hi")]))).prompt_tokens > 2


async def test_a_fault_of_the_stream_ends_its_running_turns(chatml: Path) -> None:
    """Turns that run when their stream is ended for bad input leave the engine; other streams go on."""
    worker = Worker(chatml, lambda request: ["a"] * request.max_new_tokens)
    endless = TurnSpec(messages=[user("hi")], max_output_tokens=2000)
    async with worker.running(), run_router(chatml, worker.address) as router, router.client() as client, client.session() as other:
        turn = await other.start(user("hi"), max_output_tokens=100)
        error = await failure_of(client.stub.Converse(iter((SETUP, start(1, endless), ConverseRequest()))))
        assert error.reason == "MESSAGE_EMPTY"
        assert await turn.text() == "a" * 100
        assert router.turns_in_lanes() == 0

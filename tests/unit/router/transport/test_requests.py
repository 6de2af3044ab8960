"""What comes in: messages that cannot be read, the call's id and trace, and protos as domain values."""

from __future__ import annotations

from typing import Any, cast

import grpc
import pytest
from tidegate.v1 import turn_pb2 as pb
from tidegate.v1.chat_service_pb2 import CompleteRequest

from router.errors import CallerError, Code
from router.model import Guide, GuideKind, Message, Role, Sampling, ToolCall, TurnRequest
from router.tools import Tool, ToolChoice, ToolMode
from router.transport.requests import (
    ReadingInterceptor,
    current_call,
    open_call,
    read_messages,
    read_sampling,
    read_tool_choice,
    read_turn,
    readable,
)
from tests.unit.router.transport.fake_context import FakeContext

LIMIT = 64
OURS = "/tidegate.v1.ChatService/Complete"


class Details:
    """What gRPC tells an interceptor of a call."""

    def __init__(self, method: str) -> None:
        self.method = method


async def handler_of(method: str, handler: Any) -> Any:
    """The handler that the interceptor makes of the server's own."""

    async def continuation(details: Any) -> Any:
        return handler

    return await ReadingInterceptor(LIMIT).intercept_service(continuation, cast(grpc.HandlerCallDetails, Details(method)))


def own_handler() -> Any:
    return grpc.unary_unary_rpc_method_handler(lambda request, context: request, request_deserializer=CompleteRequest.FromString)


async def test_a_message_is_parsed() -> None:
    """What can be read is handed to the handler as it is."""
    asked = CompleteRequest(spec=pb.TurnSpec(model="small"))
    handler = await handler_of(OURS, own_handler())
    assert readable(handler.request_deserializer(asked.SerializeToString())) == asked


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"\x0a\xff", "MESSAGE_UNREADABLE"),
        (CompleteRequest(spec=pb.TurnSpec(model="abc")).SerializeToString().replace(b"abc", b"a\xff\xff"), "MESSAGE_UNREADABLE"),
        (CompleteRequest(spec=pb.TurnSpec(model="x" * LIMIT)).SerializeToString(), "MESSAGE_TOO_LARGE"),
    ],
    ids=["not protobuf", "not UTF-8", "too large"],
)
async def test_what_cannot_be_read_is_the_callers_fault(data: bytes, reason: str) -> None:
    """The handler can answer with a status of ours; gRPC's own would be INTERNAL, or hold the decoder's words."""
    handler = await handler_of(OURS, own_handler())
    request = handler.request_deserializer(data)
    with pytest.raises(CallerError) as refused:
        readable(request)
    assert (refused.value.code, refused.value.reason) == (Code.INVALID_ARGUMENT, reason)


async def test_a_message_of_just_the_limit_is_taken() -> None:
    """The limit itself is allowed."""
    asked = CompleteRequest(spec=pb.TurnSpec(model="x" * (LIMIT - 4)))
    assert len(data := asked.SerializeToString()) == LIMIT
    assert readable((await handler_of(OURS, own_handler())).request_deserializer(data)) == asked


async def test_other_services_keep_their_own_parsing() -> None:
    """Health and reflection are the library's."""
    own = own_handler()
    assert await handler_of("/grpc.health.v1.Health/Check", own) is own


async def test_an_unknown_method_stays_unknown() -> None:
    """There is no handler to change."""
    assert await handler_of("/tidegate.v1.ChatService/Nothing", None) is None


@pytest.mark.parametrize("given", ["abc-1_2.3", "x" * 64])
async def test_a_harmless_request_id_is_kept(given: str) -> None:
    """So that a caller finds its own id in our logs; the rest of the call's task reads the same one."""
    call = open_call(cast(Any, FakeContext({"x-request-id": given})))
    assert call.request_id == given
    assert current_call() is call


@pytest.mark.parametrize("given", ["", "a b", "x" * 65, "id\n", "<script>", "é"])
async def test_any_other_request_id_is_replaced(given: str) -> None:
    """It would end up in logs and headers."""
    call = open_call(cast(Any, FakeContext({"x-request-id": given})))
    assert call.request_id != given
    assert len(call.request_id) == 32


async def test_each_call_has_an_id_of_its_own() -> None:
    """Where the caller gives none."""
    first, second = (open_call(cast(Any, FakeContext())) for _ in range(2))
    assert first.request_id != second.request_id


async def test_only_trace_headers_are_kept() -> None:
    """Nothing else of the metadata, such as a key, goes on."""
    metadata = {"traceparent": "00-a-b-01", "tracestate": "x=1", "authorization": "Bearer key"}
    call = open_call(cast(Any, FakeContext(metadata)))
    assert call.trace_headers == {"traceparent": "00-a-b-01", "tracestate": "x=1"}


def test_a_turn_is_read_whole() -> None:
    """Each field of the proto has its place."""
    spec = pb.TurnSpec(
        model="small",
        messages=[pb.Message(role=pb.ROLE_USER, content="hi")],
        sampling=pb.Sampling(temperature=0.5),
        max_output_tokens=9,
        min_output_tokens=2,
        stop=["a", "b"],
        tools=[pb.Tool(name="look", description="Looks.", parameters_json='{"type": "object", "maxProperties": 42}')],
        tool_choice=pb.ToolChoice(tool="look"),
        parallel_tool_calls=False,
        response_format=pb.ResponseFormat(regex="a+"),
        logprobs=True,
    )
    assert read_turn(spec) == TurnRequest(
        model="small",
        messages=(Message(Role.USER, "hi"),),
        sampling=Sampling(temperature=0.5),
        max_output_tokens=9,
        min_output_tokens=2,
        stop=("a", "b"),
        guide=Guide(GuideKind.REGEX, "a+"),
        logprobs=True,
        tools=(Tool("look", "Looks.", '{"type": "object", "maxProperties": 42}'),),
        tool_choice=ToolChoice(name="look"),
        parallel_tool_calls=False,
    )


def test_an_empty_turn_has_nothing_set() -> None:
    """Unset is told from zero and from empty."""
    assert read_turn(pb.TurnSpec()) == TurnRequest("", ())
    assert read_turn(pb.TurnSpec(max_output_tokens=0)).max_output_tokens == 0


def test_defaults_fill_what_a_turn_leaves_unset() -> None:
    """A turn's own value wins, also when it is zero."""
    defaults = pb.Sampling(temperature=1.0, top_k=5, seed=3)
    turn = read_turn(pb.TurnSpec(sampling=pb.Sampling(temperature=0.0, top_p=0.5)), "small", defaults)
    assert turn.model == "small"
    assert turn.sampling == Sampling(temperature=0.0, top_p=0.5, top_k=5, seed=3)
    assert read_turn(pb.TurnSpec(model="large"), "small").model == "large"


def test_reading_a_turn_leaves_the_defaults_alone() -> None:
    """They are the stream's, and other turns read them too."""
    defaults = pb.Sampling(temperature=1.0)
    read_turn(pb.TurnSpec(sampling=pb.Sampling(temperature=0.0)), "", defaults)
    assert defaults == pb.Sampling(temperature=1.0)


@pytest.mark.parametrize("name", [field.name for field in pb.Sampling.DESCRIPTOR.fields])
def test_zero_is_not_unset(name: str) -> None:
    """For every sampling field."""
    assert read_sampling(pb.Sampling(**{name: 0})) == Sampling(**{name: 0})


@pytest.mark.parametrize(
    ("role", "expected"),
    [
        (pb.ROLE_SYSTEM, Role.SYSTEM),
        (pb.ROLE_USER, Role.USER),
        (pb.ROLE_ASSISTANT, Role.ASSISTANT),
        (pb.ROLE_TOOL, Role.TOOL),
        (pb.ROLE_UNSPECIFIED, None),
        (99, None),
    ],
)
def test_roles(role: Any, expected: Role | None) -> None:
    """A role that is unset, or newer than this router, is no role."""
    assert read_messages([pb.Message(role=role)])[0].role is expected


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        (pb.ToolChoice(), ToolChoice()),
        (pb.ToolChoice(mode=pb.TOOL_MODE_UNSPECIFIED), ToolChoice(ToolMode.AUTO)),
        (pb.ToolChoice(mode=pb.TOOL_MODE_NONE), ToolChoice(ToolMode.NONE)),
        (pb.ToolChoice(mode=pb.TOOL_MODE_REQUIRED), ToolChoice(ToolMode.REQUIRED)),
        (pb.ToolChoice(mode=cast(pb.ToolMode, 99)), ToolChoice(None)),
        (pb.ToolChoice(tool="look"), ToolChoice(name="look")),
    ],
)
def test_tool_choices(choice: pb.ToolChoice, expected: ToolChoice) -> None:
    """Unset is auto; a mode that is newer than this router is none that it knows."""
    assert read_tool_choice(choice) == expected


def test_messages_keep_their_tool_calls() -> None:
    """Arguments stay the text that the caller sent; missing content is not empty content."""
    calls = [pb.ToolCall(id="1", name="look", arguments_json='{"n": 42}')]
    protos = [
        pb.Message(role=pb.ROLE_ASSISTANT, tool_calls=calls),
        pb.Message(role=pb.ROLE_TOOL, content="", tool_call_id="1"),
    ]
    assert read_messages(protos) == (
        Message(Role.ASSISTANT, None, (ToolCall("1", "look", '{"n": 42}'),)),
        Message(Role.TOOL, "", tool_call_id="1"),
    )

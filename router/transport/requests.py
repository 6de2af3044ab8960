"""What comes in: reading messages without letting a bad one take the call's status, request ids, and proto messages as domain values."""

from __future__ import annotations

import re
import time
import uuid
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import grpc
from google.protobuf.descriptor import Descriptor
from google.protobuf.message import DecodeError
from tidegate.v1 import turn_pb2 as pb
from tidegate.v1.chat_service_pb2 import CountTokensRequest, ToolResult

from router.auth.principal import Principal
from router.errors import CallerError, protocol_violated
from router.model import Call, Credentials, Guide, GuideKind, Message, Priority, Role, Sampling, ToolCall, TurnRequest
from router.tools import Tool, ToolChoice, ToolMode
from router.transport.wire import has_more_fields

REQUEST_ID = "x-request-id"
_SAFE_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
_READ = ("/tidegate.", "/inference.")
"""Methods whose handlers know of Unreadable."""
_SMALL = 16 * 1024
_MOST_FIELDS = 16 * 1024
"""Of a message that is not small: what is in it is then looked at in 20 ms at most."""
_TRACE_HEADERS = ("traceparent", "tracestate")


@dataclass(frozen=True, slots=True)
class Unreadable:
    """Stands in for a message that could not be read, so that the handler can answer with a status of ours."""

    error: CallerError


class ReadingInterceptor(grpc.aio.ServerInterceptor):
    """Replaces each method's deserialiser: gRPC answers a message it cannot read with INTERNAL, or with the decoder's own words.

    Its serialiser too: frames of a stream that may be resumed come serialised, since they are kept so.
    """

    def __init__(self, max_message_bytes: int) -> None:
        self._max_bytes = max_message_bytes

    async def intercept_service(self, continuation: Callable[[Any], Awaitable[Any]], handler_call_details: grpc.HandlerCallDetails) -> Any:
        handler = await continuation(handler_call_details)
        if handler is None or not handler_call_details.method.startswith(_READ):
            return handler
        reader, writer = self._tolerant(handler.request_deserializer), _sparing(handler.response_serializer)
        return handler._replace(request_deserializer=reader, response_serializer=writer)

    def _tolerant(self, parse: Callable[[bytes], Any]) -> Callable[[bytes], Any]:
        kind: Descriptor = parse.__self__.DESCRIPTOR  # type: ignore[attr-defined]  # generated code gives FromString

        def read(data: bytes) -> Any:
            if len(data) > self._max_bytes:
                text = f"the message has {len(data)} bytes; at most {self._max_bytes} are taken"
                return Unreadable(protocol_violated("MESSAGE_TOO_LARGE", "message", text))
            try:
                if len(data) > _SMALL and has_more_fields(data, kind, _MOST_FIELDS):
                    text = f"the message has more than {_MOST_FIELDS} fields, with those inside of others"
                    return Unreadable(protocol_violated("MESSAGE_TOO_LARGE", "message", text))
                return parse(data)
            except DecodeError:
                text = "the message cannot be read: not this protobuf type, or text that is not UTF-8"
                return Unreadable(protocol_violated("MESSAGE_UNREADABLE", "message", text))

        return read


def _sparing(serialise: Callable[[Any], bytes]) -> Callable[[Any], bytes]:
    def write(response: Any) -> bytes:
        return response if isinstance(response, bytes) else serialise(response)

    return write


def readable(request: Any) -> Any:
    """The request itself. Raises CallerError when it could not be read."""
    if isinstance(request, Unreadable):
        raise request.error
    return request


def open_call(context: grpc.aio.ServicerContext[Any, Any]) -> Call:
    """The RPC as the pipeline knows it; `current_call` gives the same one to the rest of the RPC's task.

    The caller's `x-request-id` is kept when it is harmless in logs and headers, else replaced.
    """
    headers = tuple(context.invocation_metadata() or ())
    left_s = context.time_remaining()
    call = describe_call(headers, Credentials(headers, context.auth_context()), None if left_s is None else time.monotonic() + left_s)
    _CALL.set(call)
    return call


def describe_call(headers: Sequence[tuple[str, str | bytes]], credentials: Credentials, deadline_s: float | None = None) -> Call:
    """A call from its headers, whose names are in lower case, whichever door it came by."""
    values = dict(headers)
    given = str(values.get(REQUEST_ID, ""))
    request_id = given if _SAFE_ID.fullmatch(given) else uuid.uuid4().hex
    trace = {key: str(values[key]) for key in _TRACE_HEADERS if key in values}
    return Call(request_id, trace, credentials, deadline_s)


def current_call() -> Call:
    """The call that `open_call` made in this task."""
    return _CALL.get()


def set_principal(principal: Principal) -> None:
    """Tells the rest of this task who is calling."""
    _PRINCIPAL.set(principal)


def current_principal() -> Principal:
    """Who is calling, as the identity check found."""
    return _PRINCIPAL.get()


_CALL: ContextVar[Call] = ContextVar("call")
_PRINCIPAL: ContextVar[Principal] = ContextVar("principal")


def read_turn(spec: pb.TurnSpec, default_model: str = "", defaults: pb.Sampling | None = None) -> TurnRequest:
    """A turn from its proto; `defaults` fill sampling fields that the turn leaves unset."""
    sampling = pb.Sampling()
    if defaults is not None:
        sampling.CopyFrom(defaults)
    sampling.MergeFrom(spec.sampling)
    return TurnRequest(
        model=spec.model or default_model,
        messages=read_messages(spec.messages),
        sampling=read_sampling(sampling),
        max_output_tokens=spec.max_output_tokens if spec.HasField("max_output_tokens") else None,
        min_output_tokens=spec.min_output_tokens if spec.HasField("min_output_tokens") else None,
        stop=tuple(spec.stop),
        guide=_read_guide(spec.response_format),
        logprobs=spec.logprobs,
        tools=read_tools(spec.tools),
        tool_choice=read_tool_choice(spec.tool_choice),
        parallel_tool_calls=spec.parallel_tool_calls if spec.HasField("parallel_tool_calls") else True,
        priority=_PRIORITIES.get(spec.priority, Priority.INTERACTIVE),
        max_wait_s=spec.max_wait.seconds + spec.max_wait.nanos / 1e9 if spec.HasField("max_wait") else None,
    )


def read_prompt(asked: CountTokensRequest) -> TurnRequest:
    """The turn whose prompt is to be counted."""
    tools, choice = read_tools(asked.tools), read_tool_choice(asked.tool_choice)
    return TurnRequest(asked.model, read_messages(asked.messages), tools=tools, tool_choice=choice)


def read_messages(messages: Iterable[pb.Message]) -> tuple[Message, ...]:
    """Messages from their protos; an unset or unknown role and an unset content become None."""
    return tuple(
        Message(
            role=_ROLES.get(message.role),
            content=message.content if message.HasField("content") else None,
            tool_calls=tuple(ToolCall(call.id, call.name, call.arguments_json) for call in message.tool_calls),
            tool_call_id=message.tool_call_id,
        )
        for message in messages
    )


def read_tools(tools: Iterable[pb.Tool]) -> tuple[Tool, ...]:
    """Tools from their protos."""
    return tuple(Tool(tool.name, tool.description, tool.parameters_json) for tool in tools)


def read_tool_choice(choice: pb.ToolChoice) -> ToolChoice:
    """A choice from its proto; a mode that is not known becomes None."""
    return ToolChoice(_TOOL_MODES.get(choice.mode), choice.tool)


def read_results(results: Iterable[ToolResult]) -> tuple[Message, ...]:
    """Results of tool calls as messages."""
    return tuple(Message(Role.TOOL, result.content, tool_call_id=result.call_id) for result in results)


def read_sampling(sampling: pb.Sampling) -> Sampling:
    """Sampling with presence kept: an unset field is None, zero is zero."""
    return Sampling(**{name: getattr(sampling, name) for name in _SAMPLING if sampling.HasField(name)})


def _read_guide(wanted: pb.ResponseFormat) -> Guide | None:
    name = wanted.WhichOneof("format")
    if name is None:
        return None
    return Guide(_GUIDES[name], "" if name == "json_object" else getattr(wanted, name))


_GUIDES = {
    "json_object": GuideKind.JSON,
    "json_schema": GuideKind.JSON_SCHEMA,
    "regex": GuideKind.REGEX,
    "grammar": GuideKind.GRAMMAR,
}
_PRIORITIES = {
    pb.PRIORITY_INTERACTIVE: Priority.INTERACTIVE,
    pb.PRIORITY_STANDARD: Priority.STANDARD,
    pb.PRIORITY_BATCH: Priority.BATCH,
}
_TOOL_MODES = {
    pb.TOOL_MODE_UNSPECIFIED: ToolMode.AUTO,
    pb.TOOL_MODE_AUTO: ToolMode.AUTO,
    pb.TOOL_MODE_NONE: ToolMode.NONE,
    pb.TOOL_MODE_REQUIRED: ToolMode.REQUIRED,
}
_SAMPLING = tuple(field.name for field in pb.Sampling.DESCRIPTOR.fields)
_ROLES = {
    pb.ROLE_SYSTEM: Role.SYSTEM,
    pb.ROLE_USER: Role.USER,
    pb.ROLE_ASSISTANT: Role.ASSISTANT,
    pb.ROLE_TOOL: Role.TOOL,
}

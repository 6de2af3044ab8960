"""GET /v1/converse as a WebSocket: the Converse protocol in the JSON form of its messages, for browsers.

Each text message is one ConverseRequest in and one ConverseResponse out, in protobuf's JSON mapping. All else is as over gRPC, resuming
too: streams.py serves both. There is no half-close: a caller waits for its turns, then closes. A fault of the call closes with 4000 plus
its gRPC status code, the reason in words; 1001 says that the router stops.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from functools import partial
from typing import Self

import grpc
from google.protobuf import json_format
from starlette.responses import Response
from starlette.types import Receive, Scope, Send
from starlette.websockets import WebSocket, WebSocketDisconnect
from tidegate.v1.chat_service_pb2 import ConverseRequest, ConverseResponse

from router.auth.principal import Principal
from router.errors import TidegateError, describe_fault, protocol_violated
from router.transport.http.errors import headers_of, status_of, to_json
from router.transport.http.gate import Gate
from router.transport.http.handshake import Handshake, read_handshake
from router.transport.http.strict_json import parse_json
from router.transport.requests import REQUEST_ID
from router.transport.streams import Streams
from router.transport.writer import CallerLeft

_GOING_AWAY, _FAULTS = 1001, 4000
_MOST_STRUCTURE = 24 * 1024
"""Of a message: protobuf reads each value of JSON in Python, and schemas are texts there."""
_MOST_WORDS = 123
"""Bytes that a closing frame has for its reason."""
_TOLD = re.compile(r'((?:Failed to parse \w+ field: )*)(?:Message type "[\w.]*?(\w+)" has no field)?')
"""How protobuf begins its words: up to here all names are ours, behind it come the caller's."""

log = logging.getLogger("tidegate.transport")


class ConverseSocket:
    """The endpoint."""

    def __init__(self, streams: Streams, gate: Gate, allowed_origins: Sequence[str]) -> None:
        self._streams = streams
        self._gate = gate
        self._allowed_origins = allowed_origins

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        websocket, handshake = WebSocket(scope, receive, send), read_handshake(scope)
        try:
            who = await self._admit(handshake)
        except TidegateError as error:
            headers = {name.decode(): value.decode() for name, value in headers_of(error)} | {REQUEST_ID: handshake.call.request_id}
            await websocket.send_denial_response(Response(to_json(error), status_of(error), headers, "application/json"))
            return
        await websocket.accept(handshake.protocol)
        try:
            await self._converse(websocket, handshake, who)
        except (CallerLeft, WebSocketDisconnect):
            pass
        except Exception as error:  # its own words may hold a prompt or a key
            log.error("a WebSocket failed; request %s: %s", handshake.call.request_id, describe_fault(error))

    async def _admit(self, handshake: Handshake) -> Principal:
        who = await self._gate.identify(handshake.call)
        if not handshake.is_allowed(self._allowed_origins):
            raise self._gate.refuse_origin(handshake.call, handshake.origin)
        return who

    async def _converse(self, websocket: WebSocket, handshake: Handshake, who: Principal) -> None:
        end = (_GOING_AWAY, "DRAINING")  # without a half-close nothing else ends a stream well
        try:
            await self._streams.serve(_Requests(websocket), partial(_write, websocket), handshake.call, (who.tenant, who.user))
        except TidegateError as fault:
            end = _describe_end(fault)
        await websocket.close(*end)


class _Requests:
    """The caller's messages, until it has left. No generator: one that is left in mid-way is closed some time later by whoever finds it."""

    def __init__(self, websocket: WebSocket) -> None:
        self._websocket = websocket

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ConverseRequest:
        """Raises CallerError MESSAGE_UNREADABLE and CallerLeft."""
        message = await self._websocket.receive()
        if message["type"] == "websocket.disconnect":
            raise CallerLeft
        return read_request(message.get("text") or "")


async def _write(websocket: WebSocket, frame: ConverseResponse | bytes) -> None:
    """Sends a frame. Raises CallerLeft."""
    message = ConverseResponse.FromString(frame) if isinstance(frame, bytes) else frame
    text = json_format.MessageToJson(message, indent=None, ensure_ascii=False)
    try:
        await websocket.send_text(text)
    except (WebSocketDisconnect, RuntimeError):  # the second when uvicorn has closed it, having found it dead
        raise CallerLeft from None


def _describe_end(fault: TidegateError) -> tuple[int, str]:
    words = f"{fault.reason}: {fault.message}".encode()[:_MOST_WORDS].decode(errors="ignore")
    return _FAULTS + grpc.StatusCode[fault.code.value].value[0], words


def read_request(text: str) -> ConverseRequest:
    """A text message of the caller. Raises CallerError MESSAGE_UNREADABLE."""
    value = parse_json(text.encode(), "message", _MOST_STRUCTURE)
    place = ""
    try:
        if isinstance(value, dict):
            return json_format.ParseDict(value, ConverseRequest())
    except Exception as error:  # the library has several for this, and their words quote the message
        place = _place_of(str(error))
    raise protocol_violated("MESSAGE_UNREADABLE", "message", f"the message is no ConverseRequest in protobuf's JSON form{place}")


def _place_of(words: str) -> str:
    told = _TOLD.match(words)
    assert told is not None, "it matches no words too"
    fields = ".".join(re.findall(r"parse (\w+)", told[1]))
    return (f": at {fields}" if fields else "") + (f": {told[2]} has no field of that name" if told[2] else "")

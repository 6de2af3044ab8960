"""GET /v1/converse as a WebSocket: the Converse protocol in the JSON form of its messages, for browsers.

Each text message is one ConverseRequest in and one ConverseResponse out, in protobuf's JSON mapping. There is no half-close: a caller waits
for its turns, then closes. A fault of the call closes with 4000 plus its gRPC status code, the reason in words; 1001 says that the router
stops.
"""

from __future__ import annotations

import asyncio
import logging

import grpc
from google.protobuf import json_format
from starlette.responses import Response
from starlette.types import Receive, Scope, Send
from starlette.websockets import WebSocket, WebSocketDisconnect
from tidegate.v1 import event_pb2
from tidegate.v1.chat_service_pb2 import ConverseRequest

from router.config import Config
from router.errors import TidegateError, describe_fault, draining, internal, protocol_violated
from router.pipeline import Pipeline
from router.telemetry import Metrics
from router.transport.http.errors import headers_of, status_of, to_json
from router.transport.http.gate import Gate
from router.transport.http.handshake import Handshake, read_handshake
from router.transport.http.strict_json import parse_json
from router.transport.requests import REQUEST_ID
from router.transport.session import Session

_DONE, _GOING_AWAY, _FAULTS = 1000, 1001, 4000
_MOST_WORDS = 123
"""Bytes that a closing frame has for its reason."""

log = logging.getLogger("tidegate.transport")


class ConverseSocket:
    """The endpoint, and the streams that are open on it."""

    def __init__(self, pipeline: Pipeline, gate: Gate, config: Config, metrics: Metrics) -> None:
        self._pipeline = pipeline
        self._gate = gate
        self._config = config
        self._metrics = metrics
        self._open: dict[Session, asyncio.Task[None]] = {}
        self._draining = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        websocket, handshake = WebSocket(scope, receive, send), read_handshake(scope)
        try:
            await self._admit(handshake)
        except TidegateError as error:
            headers = {name.decode(): value.decode() for name, value in headers_of(error)} | {REQUEST_ID: handshake.call.request_id}
            await websocket.send_denial_response(Response(to_json(error), status_of(error), headers, "application/json"))
            return
        await websocket.accept(handshake.protocol)
        try:
            await self._converse(websocket, Session(handshake.call, self._pipeline, self._config.limits))
        except WebSocketDisconnect:
            pass
        except Exception as error:  # its own words may hold a prompt or a key
            log.error("a WebSocket failed; request %s: %s", handshake.call.request_id, describe_fault(error))

    async def drain(self, grace_s: float) -> None:
        """Takes no more turns, lets the running ones finish for `grace_s` seconds, then ends them as failed."""
        self._draining = True
        for session in list(self._open):
            session.announce_end(grace_s)
        if self._open:
            await asyncio.wait(self._open.values(), timeout=grace_s)
        for session in list(self._open):
            session.cancel_turns(draining())

    async def _admit(self, handshake: Handshake) -> None:
        await self._gate.identify(handshake.call)
        handshake.check_origin(self._config.http.allowed_origins)
        if self._draining:
            raise draining()

    async def _converse(self, websocket: WebSocket, session: Session) -> None:
        reader = asyncio.create_task(_read(websocket, session))
        self._open[session] = reader
        self._metrics.streams.inc()
        try:
            await self._send_all(websocket, session)
            await websocket.close(*self._say_end(session.fault))
        finally:
            self._metrics.streams.dec()
            reader.cancel()
            await session.close()
            del self._open[session]

    async def _send_all(self, websocket: WebSocket, session: Session) -> None:
        """Returns when the stream's outbox is closed and empty."""
        while True:
            try:
                async with asyncio.timeout(self._config.timeouts.heartbeat_s):
                    frame = await session.outbox.take()
            except TimeoutError:
                session.outbox.put_stream_event(heartbeat=event_pb2.Heartbeat())
                continue
            if frame is None:
                return
            await websocket.send_text(json_format.MessageToJson(frame, indent=None))

    def _say_end(self, fault: TidegateError | None) -> tuple[int, str]:
        if fault is None:
            return (_GOING_AWAY, "DRAINING") if self._draining else (_DONE, "")
        words = f"{fault.reason}: {fault.message}".encode()[:_MOST_WORDS].decode(errors="ignore")
        return _FAULTS + grpc.StatusCode[fault.code.value].value[0], words


async def _read(websocket: WebSocket, session: Session) -> None:
    """A stream's reading task."""
    try:
        while (message := await websocket.receive())["type"] != "websocket.disconnect":
            session.receive(read_request(message.get("text") or ""))
        session.outbox.close()
    except TidegateError as error:
        session.fail(error)
    except Exception as error:
        log.error("reading a WebSocket failed: %s", describe_fault(error))
        session.fail(internal())


def read_request(text: str) -> ConverseRequest:
    """A text message of the caller. Raises CallerError MESSAGE_UNREADABLE."""
    value = parse_json(text.encode(), "message")
    try:
        if isinstance(value, dict):
            return json_format.ParseDict(value, ConverseRequest())
    except Exception:  # the library has several for this, and their words quote the message
        pass
    raise protocol_violated("MESSAGE_UNREADABLE", "message", "the message is no ConverseRequest in protobuf's JSON form")

"""Converse over a WebSocket: who may open one, what is said on it, and how it ends."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from websockets.asyncio.client import ClientConnection
from websockets.asyncio.client import connect as open_socket
from websockets.exceptions import ConnectionClosed, InvalidStatus

from router.errors import CallerError
from router.transport.http.socket import read_request
from tests.bench.router import Router
from tests.bench.tenants import make_key
from tests.bench.whole import CANARY, run_bench
from tests.bench.worker import Worker

SPEC = {"messages": [{"role": "ROLE_USER", "content": CANARY}]}
SETUP: dict[str, Any] = {"setup": {}}


def start(turn: int, **spec: Any) -> dict[str, Any]:
    return {"start": {"turn": turn, "spec": SPEC | spec}}


@asynccontextmanager
async def converse(router: Router, *messages: Any, **options: Any) -> AsyncIterator[ClientConnection]:
    """An open socket on which these have been sent."""
    async with open_socket(f"ws://{router.http}/v1/converse", **options) as socket:
        with suppress(ConnectionClosed):  # told by whoever reads
            for message in messages:
                await socket.send(message if isinstance(message, str | bytes) else json.dumps(message))
        yield socket


async def end_of(socket: ClientConnection) -> tuple[int, str]:
    """The code and words it is closed with; what comes before is read."""
    try:
        while True:
            await socket.recv()
    except ConnectionClosed as closed:
        assert closed.rcvd is not None
        return closed.rcvd.code, closed.rcvd.reason


async def refusal_of(router: Router, **options: Any) -> tuple[int, str]:
    """Status and code of a handshake that fails."""
    with pytest.raises(InvalidStatus) as caught:
        async with converse(router, **options):
            pass
    response = caught.value.response
    return response.status_code, json.loads(response.body)["error"]["code"]


async def test_many_turns_share_a_socket(chatml: Path) -> None:
    """Events carry their turn's number and rise in sequence; a bad turn fails alone; names may be in either of protobuf's spellings."""
    worker = Worker(chatml, lambda request: ["a"] * request.max_new_tokens)
    messages = (SETUP, start(1, maxOutputTokens=20), start(2, max_output_tokens=3), start(3, stop=[""]))
    async with run_bench(chatml, worker) as router, converse(router, *messages, subprotocols=["tidegate.v1"]) as socket:
        assert socket.subprotocol == "tidegate.v1"
        events: list[Any] = []
        while sum("finished" in event or "failed" in event for event in events) < 3:
            events += json.loads(await socket.recv())["events"]
    for turn, text in ((1, "a" * 20), (2, "aaa"), (3, "")):
        own = [event for event in events if event.get("turn") == turn]
        assert "".join(event.get("textDelta", {}).get("text", "") for event in own) == text
        assert [int(event["sequence"]) for event in own] == list(range(1, len(own) + 1))
    failed = next(event["failed"]["status"] for event in events if "failed" in event)
    assert {detail["@type"].rpartition(".")[2] for detail in failed["details"]} == {"ErrorInfo", "RequestInfo", "BadRequest"}


async def test_cancelling_a_turn(chatml: Path) -> None:
    """It finishes as cancelled, and the socket lives."""
    worker = Worker(chatml, lambda request: ["a"] * request.max_new_tokens)
    async with run_bench(chatml, worker) as router, converse(router, SETUP, start(1, maxOutputTokens=2000)) as socket:
        await socket.send(json.dumps({"cancel": {"turn": 1}}))
        events: list[Any] = []
        while not any("finished" in event for event in events):
            events += json.loads(await socket.recv())["events"]
        assert events[-1]["finished"]["finishReason"] == "FINISH_REASON_CANCELLED"


BAD: dict[str, tuple[tuple[Any, ...], str]] = {
    "no setup": ((start(1),), "SETUP_MISSING"),
    "setup twice": ((SETUP, SETUP), "SETUP_REPEATED"),
    "turn zero": ((SETUP, start(0)), "TURN_NUMBER_INVALID"),
    "nothing in it": ((SETUP, {}), "MESSAGE_EMPTY"),
    "no JSON": (("setup",), "MESSAGE_UNREADABLE"),
    "a list": (("[]",), "MESSAGE_UNREADABLE"),
    "bytes": ((b"\x0a\x00",), "MESSAGE_UNREADABLE"),
    "an unknown field": (({"setup": {"modle": CANARY}},), "MESSAGE_UNREADABLE"),
    "a wrong type": (({"setup": {"model": {"a": CANARY}}},), "MESSAGE_UNREADABLE"),
    "a name twice": (('{"setup": {}, "setup": {}}',), "MESSAGE_UNREADABLE"),
    "NaN": (('{"setup": {"sampling": {"temperature": NaN}}}',), "MESSAGE_UNREADABLE"),
    "not finite": (({"setup": {"sampling": {"temperature": "Infinity"}}},), "FIELD_INVALID"),
    "deep": (('{"setup":' * 5000,), "MESSAGE_UNREADABLE"),
}


async def test_a_fault_of_the_call_closes_with_its_reason(chatml: Path) -> None:
    """4000 plus the gRPC code, the reason, and nothing of the caller's words; the next socket works."""
    async with run_bench(chatml, Worker(chatml)) as router:
        for name, (messages, reason) in BAD.items():
            async with converse(router, *messages) as socket:
                code, words = await end_of(socket)
            assert (code, words.partition(":")[0]) == (4003, reason), name
            assert CANARY not in words, name
        async with converse(router, {"setup": {"model": "nope"}}) as socket:
            assert (await end_of(socket))[0] == 4005
        async with converse(router, json.dumps(SETUP) + " " * 5_000_000) as socket:
            assert (await end_of(socket))[0] == 1009
        async with converse(router, SETUP) as socket:
            assert json.loads(await socket.recv())["events"][0]["ready"]["model"] == "test"


@pytest.mark.parametrize(
    ("message", "place"),
    [
        ({"start": {"turn": 1, "request": {}}}, "StartTurn has no field of that name"),
        ({"start": {"spec": {"messages": [{"role": CANARY}]}}}, "at spec.messages.role"),
        ({"start": {"spec": {"sampling": {"topP": 1}, "modle": CANARY}}}, "at spec: TurnSpec has no field of that name"),
        ({"start": {"turn": f"Failed to parse {CANARY} field: "}}, "at turn"),
        ([], ""),
    ],
)
def test_an_unreadable_message_is_told_where(message: Any, place: str) -> None:
    """By our names of its fields, for they are written by hand in web pages; none of the caller's words are quoted."""
    with pytest.raises(CallerError) as caught:
        read_request(json.dumps(message))
    assert caught.value.message == "the message is no ConverseRequest in protobuf's JSON form" + (f": {place}" if place else "")


async def test_quiet_sockets_get_heartbeats(chatml: Path) -> None:
    """So that proxies do not close them."""
    async with run_bench(chatml, Worker(chatml), timeouts={"heartbeat_s": 0.1}) as router, converse(router, SETUP) as socket:
        kinds = [next(iter(json.loads(await socket.recv())["events"][0].keys() - {"sequence"})) for _ in range(3)]
    assert kinds == ["ready", "heartbeat", "heartbeat"]


async def test_who_may_open_a_socket(chatml: Path) -> None:
    """Credentials in a header or, for browsers, among the subprotocols; a wrong one is a 401 before the socket opens."""
    async with run_bench(chatml, Worker(chatml), auth={}) as router:
        key = await make_key(router)
        assert await refusal_of(router) == (401, "invalid_api_key")
        assert await refusal_of(router, subprotocols=["tidegate.v1", "tidegate.bearer.tg_wrong"]) == (401, "invalid_api_key")
        both = {"subprotocols": ["tidegate.v1", f"tidegate.bearer.{key}"], "additional_headers": {"authorization": f"Bearer {key}"}}
        assert await refusal_of(router, **both) == (401, "invalid_api_key")
        async with converse(router, SETUP, subprotocols=["tidegate.v1", f"tidegate.bearer.{key}"]) as socket:
            assert socket.subprotocol == "tidegate.v1"
            assert "ready" in json.loads(await socket.recv())["events"][0]
        async with converse(router, SETUP, additional_headers={"authorization": f"Bearer {key}"}) as socket:
            assert "ready" in json.loads(await socket.recv())["events"][0]


async def test_which_pages_may_open_a_socket(chatml: Path) -> None:
    """Those of the router's own origin, and those that are listed."""
    allowed = "https://console.example"
    async with run_bench(chatml, Worker(chatml), http={"allowed_origins": [allowed]}) as router:
        assert await refusal_of(router, origin="https://evil.example") == (403, "permission_denied")
        for origin in (allowed, f"http://{router.http}", None):
            async with converse(router, SETUP, origin=origin) as socket:
                assert "ready" in json.loads(await socket.recv())["events"][0]
        with pytest.raises(InvalidStatus):
            async with open_socket(f"ws://{router.http}/v1/other"):
                pass

"""Malformed requests on raw sockets and malformed bodies: no crash, no leak, no 5xx, and the server answers afterwards."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import random
import re
from pathlib import Path
from typing import Any

import pytest

from tests.bench.http import chat, connect
from tests.bench.router import Router
from tests.bench.waiting import until
from tests.bench.whole import CANARY, is_idle, run_bench
from tests.bench.worker import Worker
from tests.e2e.asking import resident_kib

BODY = json.dumps(chat(CANARY, stream=True)).encode()
HEAD = b"POST /v1/chat/completions HTTP/1.1\r\nhost: t\r\ncontent-type: application/json\r\n"
WHOLE = HEAD + b"content-length: %d\r\n\r\n" % len(BODY) + BODY
CHUNKED = HEAD + b"transfer-encoding: chunked\r\n\r\n%x\r\n%b\r\n0\r\n\r\n" % (len(BODY), BODY)
UPGRADE = (
    b"GET /v1/converse HTTP/1.1\r\nhost: t\r\nupgrade: websocket\r\nconnection: upgrade\r\n"
    b"sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\nsec-websocket-version: 13\r\n\r\n\x81\x85\x00\x00\x00\x00hello"
)
GET = b"GET /v1/models HTTP/1.1\r\nhost: t\r\n\r\n"
SEEDS = (WHOLE, CHUNKED, UPGRADE, GET, WHOLE + GET, WHOLE + WHOLE)
TROUBLE = (
    *(b"\r\n", b"\n", b"\r", b"\0", b" ", b":", b"\xff\xfe", b"\x16\x03\x01\x02\x00", b"ffffffffffffffff\r\n", b"0\r\n\r\n"),
    *(b"content-length: %b\r\n" % it for it in (b"3", b"-1", b"1, 1", b"99999999999999999999")),
    *(b"transfer-encoding: %b\r\n" % it for it in (b"chunked", b"gzip, chunked", b"identity")),
    *(b"upgrade: h2c\r\nconnection: upgrade\r\n", b"expect: 100-continue\r\n", b"host: a, b\r\n", b"connection: close\r\n"),
    *(b"PRI * HTTP/2.0\r\n\r\n", b"HTTP/0.9", b"HTTP/9.9", b"%00%ff/../..", b"x" * 5000, b"{[" * 2000),
)


def malform(chance: random.Random) -> bytes:
    """A request with one to four things wrong."""
    data = bytearray(chance.choice(SEEDS))
    for _ in range(chance.randint(1, 4)):
        at = chance.randrange(len(data) + 1)
        match chance.randrange(6):
            case 0:
                data[at:at] = chance.choice(TROUBLE)
            case 1:
                del data[at : at + chance.randint(1, 40)]
            case 2:
                data[at:at] = chance.randbytes(chance.randint(1, 20))
            case 3:
                data = data[:at]
            case 4 if at < len(data):
                data[at] = chance.randrange(256)
            case _:
                lines = data.split(b"\r\n")
                lines.insert(chance.randrange(len(lines) + 1), chance.choice(lines))
                data = bytearray(b"\r\n".join(lines))
    return bytes(data)


async def send(router: Router, data: bytes, chance: random.Random) -> bytes:
    """Sends it in one piece or two, and reads what comes for a moment."""
    async with connect(router.http) as caller:
        cut = chance.randrange(len(data) + 1)
        try:
            for piece in (data[:cut], data[cut:]):
                caller.writer.write(piece)
                await caller.writer.drain()
            async with asyncio.timeout(chance.choice((0.0, 0.05))):
                return await caller.reader.read(65536)
        except (TimeoutError, ConnectionError):
            return b""


async def fuzz(router: Router, count: int, seed: int) -> list[int]:
    """The statuses of the answers to so many malformed requests, twenty at once."""
    chance, statuses, left = random.Random(seed), list[int](), iter(range(count))

    async def work() -> None:
        for _ in left:
            answer = await send(router, malform(chance), chance)
            statuses.extend(int(it) for it in re.findall(rb"HTTP/1.1 (\d+)", answer[:20]))

    await asyncio.gather(*(work() for _ in range(20)))
    return statuses


@pytest.mark.parametrize("count", [400, pytest.param(10_000, marks=[pytest.mark.slow, pytest.mark.timeout(300)])])
async def test_malformed_requests_do_no_harm(chatml: Path, caplog: pytest.LogCaptureFixture, count: int) -> None:
    """Whatever bytes come, each is answered with less than 500 or not at all; nothing stays open and memory does not grow."""
    worker = Worker(chatml, ["ok"], max_sequences=256)
    async with run_bench(chatml, worker, http={"header_s": 1.0, "body_s": 1.0}) as router:
        await fuzz(router, 200, seed=1)
        before = resident_kib(os.getpid())
        statuses = await fuzz(router, count, seed=2)
        assert len(statuses) > count / 4
        assert max(statuses) < 500
        await until(lambda: not router.app.http.connections and is_idle(router, worker), within_s=5.0)
        assert resident_kib(os.getpid()) - before < 30 * 1024
        async with connect(router.http) as caller:
            assert (await caller.ask(value=chat("hi"))).status == 200
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


VALUES: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 0.5, 1e308, 2**63, 2**70, "", "x", CANARY, [], [1], ["a"], [[]], {}, {"a": 1}, {"type": "text"},
    {"type": "json_schema"}, {"type": "json_schema", "json_schema": {"schema": {"type": "nonsense"}}}, {"include_usage": 1}, "\ud800",
    [{"role": "user", "content": [{"type": "image_url"}]}], [{"role": "assistant", "tool_calls": [{}]}], [{"role": "tool", "content": {}}],
)  # fmt: skip


async def test_malformed_bodies_are_refused_or_served(chatml: Path) -> None:
    """Any value in any field is served or is a 400 that names a field, never a 5xx, and echoes no text of the caller."""
    document = (await _document(chatml))["components"]["schemas"]
    cases = [
        (path, name, value)
        for path, kind in (("/v1/chat/completions", "ChatRequest"), ("/v1/completions", "CompletionRequest"))
        for name in document[kind]["properties"]
        for value in VALUES
    ]
    async with run_bench(chatml, Worker(chatml, ["ok"], step_s=0.0)) as router, connect(router.http) as caller:
        for path, name, value in cases:
            base = chat("hi") if path.startswith("/v1/chat") else {"prompt": "hi"}
            response = await caller.ask(path, base | {name: value})
            assert response.status in (200, 400, 404), (path, name, value)
            if response.status != 200:
                assert response.error["param"], (path, name, value)
                assert CANARY not in response.body.decode()


async def _document(folder: Path) -> Any:
    async with run_bench(folder, wait_up=False) as router, connect(router.http) as caller:
        return (await caller.ask("/openapi.json")).json


BAD_JSON: dict[str, bytes] = {
    "nothing": b"",
    "cut": b'{"model":',
    "no JSON": b"model=test",
    "NaN": b'{"temperature": NaN}',
    "infinity": b'{"temperature": -Infinity}',
    "too large": b'{"temperature": 1e999}',
    "many digits": b'{"seed": ' + b"9" * 10_000 + b"}",
    "a name twice": b'{"max_tokens": 1, "max_tokens": 9999}',
    "deep list": b"[" * 20_000,
    "deep object": b'{"a":' * 20_000,
    "deep schema": b'{"messages": [], "response_format": {"type": "json_schema", "json_schema": {"schema": '
    + b'{"a":' * 900
    + b"1"
    + b"}" * 903,
    "not UTF-8": b'{"model": "\xff"}',
    "UTF-16": json.dumps(chat("hi")).encode("utf-16"),
    "a mark first": b"\xef\xbb\xbf{}",
    "two values": b"{}{}",
    "a list": b"[]",
    "a text": b'"hi"',
    "null": b"null",
}


async def test_bad_json_is_refused(chatml: Path) -> None:
    """What is not JSON, or only to Python, is a 400 on both APIs; the connection lives."""
    worker = Worker(chatml)
    async with run_bench(chatml, worker) as router, connect(router.http) as caller:
        for name, body in BAD_JSON.items():
            for path in ("/v1/chat/completions", "/v1/completions"):
                response = await caller.ask(path, body)
                assert response.status == 400, name
                assert response.error["code"] in ("body_unreadable", "field_invalid"), name
        assert (await caller.ask(value=chat("half \ud83d"))).status == 200
        assert worker.calls == 1

"""The HTTP door's bounds: in size, in time and in number. What is over them is refused by name, and nobody else notices."""

from __future__ import annotations

import asyncio
import gzip
import json
import resource
import socket
from pathlib import Path
from typing import Any

import pytest

from tests.bench.http import Caller, chat, connect, small_window
from tests.bench.router import Router
from tests.bench.waiting import until
from tests.bench.whole import CANARY, is_idle, run_bench
from tests.bench.worker import Wait, Worker

HEAD = b"POST /v1/chat/completions HTTP/1.1\r\nhost: t\r\ncontent-type: application/json\r\n"
BODY = json.dumps(chat(CANARY)).encode()


async def works(router: Router) -> bool:
    """Whether a good request on a new connection is answered."""
    async with connect(router.http) as caller:
        return (await caller.ask(value=chat("hi"))).status == 200


async def answer_to(caller: Caller) -> tuple[int, str]:
    """Status and code of an answer that ends the connection."""
    data = await caller.reader.read()
    head, _, body = data.partition(b"\r\n\r\n")
    return int(head.split()[1]), json.loads(body)["error"]["code"]


async def test_compressed_bodies_are_not_inflated(chatml: Path) -> None:
    """A small body that would be huge is refused by its header: nothing is inflated, whoever asks."""
    bomb = gzip.compress(bytes(64 * 1024 * 1024))
    async with run_bench(chatml, Worker(chatml)) as router, connect(router.http) as caller:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        for coding in ("gzip", "deflate", "br", "zstd"):
            response = await caller.ask(value=bomb, content_encoding=coding)
            assert (response.status, response.error["param"]) == (415, "content-encoding")
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 20 * 1024
        assert (await caller.ask(value=chat("hi"))).status == 200


async def test_large_bodies_are_refused(chatml: Path) -> None:
    """Told by its length or found while it comes in pieces, a body over the limit is a 413 that names it."""
    async with run_bench(chatml, Worker(chatml), limits={"max_message_bytes": 10_000}) as router:
        async with connect(router.http) as caller:
            response = await caller.ask(value=chat("x" * 20_000))
            assert (response.status, response.error["code"]) == (413, "message_too_large")
            assert "10000" in response.error["message"]
            assert (await caller.ask(value=chat("x" * 1_000))).status == 200
        async with connect(router.http) as caller:
            caller.writer.write(HEAD + b"transfer-encoding: chunked\r\n\r\n" + b"1000\r\n%b\r\n" % bytes(4096) * 4)
            assert b" 413 " in await caller.reader.readuntil(b"\r\n\r\n")


async def test_large_heads_are_refused(chatml: Path) -> None:
    """Many headers, one long header and a long path, at once or in pieces, are a 431; nothing is kept of them."""
    heads = {
        "many": HEAD + b"".join(b"x-%d: y\r\n" % at for at in range(5000)) + b"\r\n",
        "long": HEAD + b"x-long: " + b"y" * 100_000,
        "path": b"GET /" + b"x" * 100_000 + b" HTTP/1.1\r\nhost: t\r\n\r\n",
    }
    async with run_bench(chatml, Worker(chatml)) as router:
        for head in heads.values():
            async with asyncio.timeout(5.0), connect(router.http) as caller:
                for at in range(0, len(head), 10_000):
                    caller.writer.write(head[at : at + 10_000])
                    await asyncio.sleep(0)
                assert await answer_to(caller) == (431, "headers_too_large")
        assert await works(router)


async def test_what_is_refused_on_a_kept_connection_is_answered(chatml: Path) -> None:
    """A second request is refused like a first one, whether it comes in one piece or in several."""
    wrong = {
        (431, "headers_too_large"): HEAD + b"x-long: " + b"y" * 100_000 + b"\r\n\r\n",
        (400, "request_unreadable"): b"nonsense\r\n\r\n",
        (405, "method_not_allowed"): b"CONNECT t:1 HTTP/1.1\r\nhost: t\r\n\r\n",
    }
    async with run_bench(chatml, Worker(chatml)) as router:
        for (status, code), sent in wrong.items():
            for size in (10_000, len(sent)):
                async with asyncio.timeout(10.0), connect(router.http) as caller:
                    assert (await caller.ask(value=chat("hi"))).status == 200
                    for at in range(0, len(sent), size):
                        caller.writer.write(sent[at : at + size])
                        await asyncio.sleep(0)
                    assert await answer_to(caller) == (status, code)


@pytest.mark.parametrize("expects", [b"", b"expect: 100-continue\r\n"])
@pytest.mark.parametrize("body", ["whole", "later", "chunked"])
async def test_a_status_before_the_body_leaves_the_connection_in_order(chatml: Path, expects: bytes, body: str) -> None:
    """What follows is the next request, which is answered, or the connection ends with the answer; no body is taken for a request."""
    length = b"transfer-encoding: chunked\r\n" if body == "chunked" else b"content-length: %d\r\n" % len(BODY)
    data = b"%x\r\n%b\r\n0\r\n\r\n" % (len(BODY), BODY) if body == "chunked" else BODY
    refused = {404: b"POST /nowhere HTTP/1.1\r\nhost: t\r\n", 405: b"POST /v1/models HTTP/1.1\r\nhost: t\r\n", 415: HEAD}
    async with run_bench(chatml, Worker(chatml)) as router:
        for status, head in refused.items():
            kind = b"content-encoding: gzip\r\n" if status == 415 else b""
            async with asyncio.timeout(10.0), connect(router.http) as caller:
                caller.writer.write(head + kind + expects + length + b"\r\n" + (data if body in ("whole", "chunked") else b""))
                first = await read_answer(caller)
                assert b" %d " % status in first
                if body == "later":
                    caller.writer.write(data)
                assert (b"connection: close" in first) == bool(expects)
                if expects:
                    assert not await caller.reader.read()
                else:
                    caller.writer.write(b"GET /v1/models HTTP/1.1\r\nhost: t\r\n\r\n")
                    assert b" 200 " in await read_answer(caller)


async def read_answer(caller: Caller) -> bytes:
    """The head of an answer that has a length; its body is read too."""
    head = await caller.reader.readuntil(b"\r\n\r\n")
    await caller.reader.readexactly(int(head.lower().partition(b"content-length: ")[2].partition(b"\r")[0]))
    return head.lower()


async def test_fields_behind_a_body_are_no_headers(chatml: Path) -> None:
    """A proxy that checks or strips headers does not see them: trailers say nothing, neither who calls nor a request's id."""
    chunked = HEAD + b"transfer-encoding: chunked\r\n%b\r\n%x\r\n%b\r\n0\r\nx-request-id: late\r\nauthorization: Bearer none\r\n\r\n"
    async with run_bench(chatml, Worker(chatml)) as router, connect(router.http) as caller:
        for header, told in ((b"x-request-id: mine\r\n", "mine"), (b"", "")):
            caller.writer.write(chunked % (header, len(BODY), BODY))
            head = (await caller.reader.readuntil(b"\r\n\r\n")).decode()
            assert " 200 " in head
            assert f"x-request-id: {told}" in head
            assert "late" not in head
            await caller.reader.readexactly(int(head.partition("content-length: ")[2].partition("\r")[0]))


async def test_endless_fields_between_and_behind_chunks_are_refused(chatml: Path) -> None:
    """Trailers and what may stand behind a chunk's length are bounded like a head, for nothing else of a body is free."""
    head = HEAD + b"transfer-encoding: chunked\r\n\r\n1\r\n{\r\n"
    async with run_bench(chatml, Worker(chatml)) as router:
        for endless in (b"0\r\n" + b"x: y\r\n" * 20_000, b"0\r\nx: " + b"y" * 100_000, b"1;" + b"y" * 100_000):
            async with asyncio.timeout(5.0), connect(router.http) as caller:
                sent = head + endless
                for at in range(0, len(sent), 10_000):
                    caller.writer.write(sent[at : at + 10_000])
                    await asyncio.sleep(0)
                assert await answer_to(caller) == (431, "headers_too_large")
        assert await works(router)


async def test_slow_writers_are_cut(chatml: Path) -> None:
    """A head or body that does not come in time is a 408; a connection on which nothing comes is closed; others are not held up."""
    bounds = {"header_s": 0.2, "body_s": 0.4}
    parts = (HEAD[:30], HEAD, HEAD + b"content-length: %d\r\n\r\n" % len(BODY), HEAD + b"content-length: 100\r\n\r\n{")
    async with run_bench(chatml, Worker(chatml), http=bounds) as router, asyncio.timeout(5.0):
        await asyncio.gather(*(is_cut_as_slow(router, part) for part in parts))
        async with connect(router.http) as caller:
            assert await caller.reader.read() == b""
        async with connect(router.http) as caller:  # the second request of a connection is timed like the first
            assert (await caller.ask(value=chat("hi"))).status == 200
            caller.writer.write(HEAD)
            assert await answer_to(caller) == (408, "request_timeout")


async def is_cut_as_slow(router: Router, part: bytes) -> None:
    """Sends no more than this of a request."""
    async with connect(router.http) as caller:
        caller.writer.write(part)
        assert await works(router)
        assert await answer_to(caller) == (408, "request_timeout")


async def test_a_long_answer_is_not_a_slow_request(chatml: Path) -> None:
    """The time limits are those of a request: an answer may take as long as it does."""
    async with run_bench(chatml, Worker(chatml, [Wait(0.8), "ok"]), http={"header_s": 0.2, "body_s": 0.2}) as router:
        assert await works(router)


async def test_a_caller_that_does_not_read_loses_its_connection(chatml: Path) -> None:
    """After the limit without reading, its turns leave the engine; others keep their pace meanwhile."""
    worker = Worker(chatml, lambda request: ["a"] * 1950 if request.max_new_tokens > 1000 else ["b"] * 100, max_sequences=64)
    async with run_bench(chatml, worker, timeouts={"slow_reader_s": 0.4}, http={"max_choices": 50}) as router:
        with small_window(router.http) as unread:
            unread.sendall(whole_request(chat(CANARY, stream=True, n=50, max_tokens=1950)))
            await until(lambda: worker.calls == 50)
            async with connect(router.http) as caller:
                response = await caller.ask(value=chat("hi", stream=True, max_tokens=100))
            assert (response.text, response.is_done) == ("b" * 100, True)
            await until(lambda: is_idle(router, worker), within_s=5.0)
            await until(lambda: is_cut(unread), within_s=5.0)


def whole_request(value: Any) -> bytes:
    body = json.dumps(value).encode()
    return HEAD + b"content-length: %d\r\n\r\n%b" % (len(body), body)


def is_cut(connection: socket.socket) -> bool:
    """Whether the other side has reset it."""
    try:
        connection.send(b"\r\n")
    except OSError:
        return True
    return False


async def test_connections_over_the_limit_are_told_to_come_back(chatml: Path) -> None:
    """One connection too many is answered with 503 and closed; when another has gone there is room again."""
    async with run_bench(chatml, Worker(chatml), http={"max_connections": 2}) as router:
        async with connect(router.http) as first, connect(router.http) as second, connect(router.http) as third:
            assert await answer_to(third) == (503, "too_many_connections")
            assert [(await it.ask(value=chat("hi"))).status for it in (first, second)] == [200, 200]
        await until(lambda: not router.app.http.connections)
        assert await works(router)


async def test_an_upgrade_to_http2_is_ignored(chatml: Path) -> None:
    """Java's own client asks for it with every request; the request is served as it is, body and all, in one piece or several."""
    request = whole_request(chat("hi")).replace(
        b"host: t\r\n", b"host: t\r\nconnection: Upgrade, HTTP2-Settings\r\nupgrade: h2c\r\nhttp2-settings: AAMAAABkAAQ\r\n"
    )
    async with run_bench(chatml, Worker(chatml)) as router:
        for cut in (len(request), len(request) - 10, 40):
            async with asyncio.timeout(5.0), connect(router.http) as caller:
                caller.writer.write(request[:cut])
                await asyncio.sleep(0.05)
                caller.writer.write(request[cut:])
                assert b" 200 OK" in await caller.reader.readuntil(b"\r\n\r\n")


COUNTS: dict[str, tuple[Any, str]] = {
    "a million answers": ({"n": 1_000_000}, "n"),
    "answers for many prompts": ({"prompt": ["a"] * 10_000}, "n"),
    "alternatives": ({"logprobs": True, "top_logprobs": 1_000_000}, "top_logprobs"),
    "stops": ({"stop": ["a"] * 10_000}, "stop"),
    "a long stop": ({"stop": "a" * 10_000}, "stop[0]"),
    "biases": ({"logit_bias": {str(at): 1 for at in range(10_000)}}, "logit_bias"),
    "messages": ({"messages": [{"role": "user", "content": "a"}] * 5_000}, "messages"),
    "tools": ({"tools": [{"type": "function", "function": {"name": f"t{at}"}} for at in range(2000)]}, "tools"),
    "negative": ({"max_tokens": -1}, "max_tokens"),
    "seed": ({"seed": 2**64}, "seed"),
}


async def test_counts_are_bounded(chatml: Path) -> None:
    """What could be made to cost without bound is refused, with the field and its limit, and reaches no worker."""
    worker = Worker(chatml)
    async with run_bench(chatml, worker) as router, connect(router.http) as caller:
        for options, field in COUNTS.values():
            path = "/v1/completions" if "prompt" in options else "/v1/chat/completions"
            value = options if "prompt" in options else chat(CANARY) | options
            response = await caller.ask(path, value)
            assert (response.status, response.error["param"]) == (400, field)
            assert CANARY not in response.body.decode()
        assert worker.calls == 0

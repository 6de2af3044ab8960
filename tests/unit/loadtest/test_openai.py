"""The HTTP target against servers that do right and wrong: an answer is complete only when the server said so."""

from __future__ import annotations

import asyncio
import json
import time

import pytest
from loadtest.mocks.openai_mock import run_mock, write_chunk
from loadtest.record import Outcome, Record, Usage
from loadtest.targets.openai import OpenAIOptions, OpenAITarget, reason_of

from tests.bench.waiting import until
from tests.unit.loadtest.fakes import END, FIRST, HEAD, LAST, WORD, Step, always, make_request, serve_http


async def ask(url: str, *, tokens: int = 8) -> Record:
    record = Record(0, "", time.perf_counter())
    async with OpenAITarget.open(OpenAIOptions(url, "mock")) as target:
        async with asyncio.timeout(5):
            await target.run(make_request(tokens=tokens), record)
    return record


async def play(*steps: Step) -> Record:
    async with serve_http(always(*steps)) as url:
        return await ask(url)


def event(data: object) -> bytes:
    return write_chunk(f"data: {json.dumps(data)}\n\n".encode())


def refusal(status: str, body: bytes, *headers: str) -> bytes:
    head = "".join(f"{line}\r\n" for line in (f"HTTP/1.1 {status}", f"content-length: {len(body)}", *headers))
    return head.encode() + b"\r\n" + body


async def test_a_whole_answer() -> None:
    """The role's chunk is no content; the server's count is kept."""
    usage = event({"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 4}}})
    record = await play(HEAD + FIRST, 0.05, WORD, 0.05, WORD + LAST + usage + END)
    assert (record.outcome, record.usage, len(record.arrivals)) == (Outcome.COMPLETED, Usage(9, 2, 4), 2)
    assert record.sent is not None
    assert record.arrivals[0] - record.sent >= 0.05


@pytest.mark.parametrize(
    ("steps", "reason"),
    [
        ([HEAD, WORD, WORD, None], "CONNECTION_LOST"),
        ([HEAD, WORD, WORD], "CONNECTION_LOST"),
        ([HEAD, WORD, b"0\r\n\r\n"], "STREAM_ENDED"),
        ([HEAD, WORD, END], "FINISH_MISSING"),
        ([HEAD, WORD, event({"error": {"code": "engine_failed", "message": "secret"}}), END], "ENGINE_FAILED"),
        ([HEAD, WORD, event({"error": "secret"}), 9.0], "STREAM_ERROR"),
        ([HEAD, WORD, write_chunk(b"data: {\n\n"), END], "CHUNK_UNREADABLE"),
        ([HEAD, WORD, b"zz\r\n"], "NOT_HTTP"),
        ([None], "CONNECTION_LOST"),
        ([refusal("200 OK", b"{}", "content-type: application/json")], "NOT_A_STREAM"),
        ([refusal("500 No", b"<html>")], "HTTP_500"),
        ([refusal("404 No", b'{"error": {"code": "model_not_found", "message": "secret"}}')], "MODEL_NOT_FOUND"),
        ([refusal("503 No", b"{}")], "HTTP_503"),
    ],
)
async def test_what_is_not_complete_has_failed(steps: list[Step], reason: str) -> None:
    """Errors in the stream, ends without a finish, cuts and refusals; the reason never holds a message."""
    record = await asyncio.wait_for(play(*steps), 2)
    assert (record.outcome, record.reason) == (Outcome.FAILED, reason)


@pytest.mark.parametrize(
    "answer",
    [
        refusal("429 Busy", b'{"error": {"code": "quota_exhausted"}}'),
        refusal("503 Busy", b'{"error": {"code": "quota_exhausted"}}', "retry-after: 1"),
    ],
)
async def test_busy_is_shed(answer: bytes) -> None:
    """A server that says to come back later did nothing wrong; when is kept."""
    record = await play(answer)
    assert record.retry_after_s == (1 if b"retry-after" in answer else 0)
    assert (record.outcome, record.reason) == (Outcome.SHED, "QUOTA_EXHAUSTED")


async def test_nobody_there_is_a_failure() -> None:
    """Of the request, not of the harness."""
    record = await ask("http://127.0.0.1:1")
    assert (record.outcome, record.reason) == (Outcome.FAILED, "CONNECT_FAILED")


async def test_an_answer_in_single_bytes_is_read() -> None:
    """HTTP's chunks and the events inside are cut everywhere."""
    whole = HEAD + FIRST + WORD + WORD + LAST + END
    record = await play(*(whole[at : at + 1] for at in range(len(whole))))
    assert (record.outcome, record.tokens) == (Outcome.COMPLETED, 2)


async def test_connections_are_used_again() -> None:
    """One after the other, requests share a connection; at once, they do not."""
    async with run_mock(0.001) as (engine, port), OpenAITarget.open(OpenAIOptions(f"http://127.0.0.1:{port}", "mock")) as target:
        records = [Record(at, "", 0.0) for at in range(6)]
        for record in records[:3]:
            await target.run(make_request(tokens=3), record)
        await asyncio.gather(*(target.run(make_request(tokens=3), record) for record in records[3:]))
    assert [(record.outcome, record.tokens) for record in records] == [(Outcome.COMPLETED, 3)] * 6
    assert engine.made == 18


async def test_a_cancelled_request_is_cancelled_at_the_server() -> None:
    """Its connection closes, and the server stops making tokens for it."""
    async with run_mock(0.001) as (engine, port), OpenAITarget.open(OpenAIOptions(f"http://127.0.0.1:{port}", "mock")) as target:
        running = asyncio.create_task(target.run(make_request(tokens=100_000), Record(0, "", 0.0)))
        await until(lambda: engine.answers)
        running.cancel()
        await asyncio.wait({running})
        await until(lambda: not engine.answers)


def test_options_of_a_request() -> None:
    """What is sent: the tenant in headers, the whole address when one is given, exact lengths when asked for."""
    options = OpenAIOptions("http://h/v9/chat", "m", {"Authorization": "Bearer {tenant}"}, exact_length=True)
    target = OpenAITarget(options)
    request = make_request(tokens=7, tenant="tenant-3")
    head = target._head(request.tenant, 5)
    assert dict(head.headers)[b"authorization"] == b"Bearer tenant-3"
    assert head.target == b"/v9/chat"
    assert target._body(request)["min_tokens"] == target._body(request)["max_tokens"] == 7


@pytest.mark.parametrize("url", ["ftp://h", "h:80", "http://"])
def test_what_is_no_url_is_refused(url: str) -> None:
    """Before anything runs."""
    with pytest.raises(ValueError, match="http"):
        OpenAITarget(OpenAIOptions(url, "m"))


def test_a_reason_is_a_code() -> None:
    """Or a type, or else what the caller says; in UPPER_SNAKE."""
    assert reason_of({"code": 400, "type": "invalid_request-error"}, "X") == "INVALID_REQUEST_ERROR"
    assert reason_of({"code": "500"}, "X") == "HTTP_500"
    assert reason_of({"message": "the prompt"}, "X") == "X"
    assert reason_of(None, "X") == "X"

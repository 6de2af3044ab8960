"""What is at each path of the HTTP door besides answers, and what holds for all of them."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import grpc
import pytest
from grpc_reflection.v1alpha.reflection_pb2 import ServerReflectionRequest, ServerReflectionResponse

from tests.bench.http import CHAT, Response, chat, connect
from tests.bench.tenants import limit, make_key
from tests.bench.tracing import SAMPLED, Spans
from tests.bench.waiting import until
from tests.bench.whole import run_bench
from tests.bench.worker import Worker

OPEN = ("/healthz", "/readyz", "/metrics", "/openapi.json", "/docs")
ORIGIN = "https://console.example"


async def test_probes(chatml: Path) -> None:
    """Alive from the start, ready while a model has a worker; the metrics are those of the whole router."""
    worker = Worker(chatml)
    async with run_bench(chatml, worker) as router, connect(router.http) as caller:
        await caller.ask(value=chat("hi"))
        metrics = await caller.ask("/metrics")
        assert metrics.headers["content-type"].startswith("text/plain")
        assert b'tidegate_turns_total{model="test",outcome="stop"} 1.0' in metrics.body
        assert [(await caller.ask(path)).status for path in OPEN] == [200] * len(OPEN)
        await worker.stop()
        await until(lambda: not any(it.up for it in router.app.workers))
        assert [(await caller.ask(path)).status for path in OPEN] == [200, 503, 200, 200, 200]
        await worker.start()


async def test_only_probes_and_documents_are_open(chatml: Path) -> None:
    """Whatever else is asked, with whatever method, nobody gets further than 401 without credentials, and nothing of a body is read."""
    async with run_bench(chatml, Worker(chatml), auth={}) as router, connect(router.http) as caller:
        paths = [path for path in (await caller.ask("/openapi.json")).json["paths"] if path not in OPEN]
        assert len(paths) >= 5
        for path in (*paths, "/v1/embeddings"):
            method = "POST" if "completions" in path or "embeddings" in path else "GET"
            refused = await caller.ask(path, b"not json" if method == "POST" else None, method)
            assert (refused.status, refused.error["code"]) in ((401, "invalid_api_key"), (426, "upgrade_required")), path
        assert [(await caller.ask(path)).status for path in OPEN] == [200] * len(OPEN)
        for value in ("Bearer", "Bearer tg_x", "Basic eDp5", "Bearer cl\xe9", "x" * 20_000):
            assert (await caller.ask(value=chat("hi"), authorization=value)).status == 401
        assert (await caller.ask(value=chat("hi"), authorization=f"Bearer {await make_key(router)}")).status == 200


async def test_methods_and_paths(chatml: Path) -> None:
    """HEAD is GET without a body; a wrong method is a 405 with Allow, an unknown path a 404, both as errors of the API."""
    async with run_bench(chatml, Worker(chatml)) as router, connect(router.http) as caller:
        head, get = await caller.ask("/v1/models", method="HEAD"), await caller.ask("/v1/models")
        assert (head.status, head.body, head.headers["content-length"]) == (200, b"", str(len(get.body)))
        for path, method, allow in (
            ("/v1/chat/completions", "GET", "POST"),
            ("/v1/chat/completions", "HEAD", "POST"),
            ("/v1/models", "DELETE", "GET, HEAD"),
            ("/v1/models/test", "OPTIONS", "GET, HEAD"),
        ):
            refused = await caller.ask(path, method=method)
            assert (refused.status, refused.headers["allow"]) == (405, allow)
        for path in ("/", "//", "/v1", "/v1/", "/v2/models%0a"):
            assert (await caller.ask(path)).error["code"] == "path_unknown"
        assert (await caller.ask("/v1/models/a/b")).error["code"] == "model_not_found"
        assert (await caller.ask("/v1/converse")).status == 426
        assert (await caller.ask("/v1/embeddings", {"input": "a", "model": "test"})).status == 501
        responses = await caller.ask("/v1/responses", {"input": "a"})
        assert (responses.status, responses.error["code"]) == (501, "endpoint_unserved")
        assert "/v1/chat/completions" in responses.error["message"]


async def test_needless_slashes_are_left_out(chatml: Path) -> None:
    """Clients whose base URL ends with one write two, or one at the end; the body is taken as it came."""
    async with run_bench(chatml, Worker(chatml)) as router, connect(router.http) as caller:
        for path in ("/v1/chat/completions/", "/v1//chat/completions", "//v1/chat/completions//"):
            assert (await caller.ask(path, chat("hi"))).status == 200


@pytest.mark.parametrize(("listen", "metrics", "status"), [("127.0.0.1", False, 200), ("0.0.0.0", False, 404), ("0.0.0.0", True, 200)])
async def test_metrics_are_shown_to_callers_on_loopback_or_where_configured(chatml: Path, listen: str, metrics: bool, status: int) -> None:
    """They tell of all tenants; Prometheus has a port of its own."""
    http, auth = {"listen": f"{listen}:0", "metrics": metrics}, {"anonymous": False}
    async with run_bench(chatml, Worker(chatml), http=http, auth=auth, plaintext_anywhere=True) as router:
        async with connect(router.http.replace("0.0.0.0", "127.0.0.1")) as caller:
            assert (await caller.ask("/metrics")).status == status
            assert (await caller.ask("/healthz")).status == 200


async def test_other_media_types_are_refused(chatml: Path) -> None:
    """A body is JSON and says so."""
    async with run_bench(chatml, Worker(chatml)) as router, connect(router.http) as caller:
        for given in ("text/plain", "application/x-www-form-urlencoded", "", "application/jsonp"):
            refused = await caller.ask(value=chat("hi"), content_type=given)
            assert (refused.status, refused.error["param"]) == (415, "content-type")
        assert (await caller.ask(value=chat("hi"), content_type="Application/JSON; charset=utf-8")).status == 200


async def test_http_1_0_has_no_chunks(chatml: Path) -> None:
    """As proxies still speak it: a streamed answer to it has no coding that it does not know, and ends with its connection."""
    async with run_bench(chatml, Worker(chatml, ["he", "llo"])) as router:
        for path, value in ((CHAT, chat("hi", stream=True)), (CHAT, chat("hi")), ("/v1/completions", {"prompt": "hi", "stream": True})):
            body = json.dumps(value).encode()
            async with connect(router.http) as caller:
                caller.writer.write(b"POST %b HTTP/1.0\r\ncontent-type: application/json\r\n" % path.encode())
                caller.writer.write(b"content-length: %d\r\n\r\n%b" % (len(body), body))
                head, _, told = (await caller.reader.read()).partition(b"\r\n\r\n")
            assert b"transfer-encoding" not in head
            assert b"connection: close" in head
            response = Response(200, {}, [told])
            assert (response.text, response.is_done) == ("hello", True) if "stream" in value else response.json["choices"]


async def test_request_ids_and_traces(chatml: Path) -> None:
    """A harmless id comes back, on errors too, and any other is replaced; spans join the caller's trace."""
    async with run_bench(chatml, Worker(chatml)) as router, connect(router.http) as caller:
        spans = Spans(router)
        for value in (chat("hi"), chat("hi", stream=True), chat("hi", n=0)):
            assert (await caller.ask(value=value, x_request_id="mine-1")).headers["x-request-id"] == "mine-1"
            for given in ("a b", "x" * 65, '{"a":1}', "\xe9"):
                assert len((await caller.ask(value=value, x_request_id=given)).headers["x-request-id"]) == 32
        await caller.ask(value=chat("hi"), **SAMPLED)
        assert {span.context.trace_id for span in spans.all} == {int("a" * 32, 16)}


async def test_equal_request_ids_do_not_mix(chatml: Path) -> None:
    """Two callers who choose the same id at the same time each get their own answer."""
    worker = Worker(chatml, lambda request: [f"{len(request.prompt)} "] * 10)
    async with run_bench(chatml, worker) as router, connect(router.http) as one, connect(router.http) as other:
        asked = ((one, "x"), (other, "xxxx"))
        answers = await asyncio.gather(*(caller.ask(value=chat(text, stream=True), x_request_id="1") for caller, text in asked))
    assert [len(set(answer.text.split())) for answer in answers] == [1, 1]
    assert answers[0].text != answers[1].text


async def test_what_is_left_of_quotas(chatml: Path) -> None:
    """OpenAI's headers tell the tightest limit of each kind, on whole and streamed answers; without limits there are none."""
    async with run_bench(chatml, Worker(chatml)) as router, connect(router.http) as caller:
        assert not [name for name in (await caller.ask(value=chat("hi"))).headers if name.startswith("x-ratelimit")]
        await limit(router, "local", requests_per_minute=10, output_tokens_per_minute=5000)
        for count, stream in enumerate((False, True), 1):
            headers = (await caller.ask(value=chat("hi", stream=stream, max_tokens=5))).headers
            assert headers["x-ratelimit-limit-requests"] == "10"
            assert headers["x-ratelimit-limit-output-tokens"] == "5000"
            assert 0 <= int(headers["x-ratelimit-remaining-requests"]) <= 10 - count


async def test_web_pages_may_call_only_if_allowed(chatml: Path) -> None:
    """Without configuration no response has a CORS header; with it, the listed origins may call and others not."""
    asked = {"origin": ORIGIN, "access_control_request_method": "POST", "access_control_request_headers": "authorization,content-type"}
    async with run_bench(chatml, Worker(chatml)) as router, connect(router.http) as caller:
        for response in (await caller.ask(value=chat("hi"), origin=ORIGIN), await caller.ask(method="OPTIONS", **asked)):
            assert not [name for name in response.headers if name.startswith("access-control")]
    async with run_bench(chatml, Worker(chatml), http={"allowed_origins": [ORIGIN]}) as router, connect(router.http) as caller:
        allowed = await caller.ask(method="OPTIONS", **asked)
        assert (allowed.status, allowed.headers["access-control-allow-origin"]) == (200, ORIGIN)
        answer = await caller.ask(value=chat("hi", stream=True), origin=ORIGIN)
        assert (answer.headers["access-control-allow-origin"], answer.headers["access-control-expose-headers"]) == (ORIGIN, "*")
        other = await caller.ask(value=chat("hi"), origin="https://evil.example")
        assert "access-control-allow-origin" not in other.headers


@pytest.mark.parametrize(("unknown", "status", "told"), [("refuse", 400, None), ("ignore", 200, "a.b, logit_processor")])
async def test_unknown_options_are_refused_or_told_to_be_ignored(chatml: Path, unknown: str, status: int, told: str | None) -> None:
    """By name, in the answer's header, whole or streamed."""
    async with run_bench(chatml, Worker(chatml), http={"unknown_options": unknown}) as router, connect(router.http) as caller:
        for more in ({}, {"stream": True}):
            response = await caller.ask(value=chat("hi") | {"logit_processor": 1, "a.b": 2} | more)
            assert (response.status, response.headers.get("x-tidegate-ignored")) == (status, told)
        assert "x-tidegate-ignored" not in (await caller.ask(value=chat("hi"))).headers


async def test_reflection_is_served_in_both_versions(chatml: Path) -> None:
    """Newer tools ask for v1 first."""
    async with run_bench(chatml, Worker(chatml)) as router, grpc.aio.insecure_channel(router.target) as channel:
        for version in ("v1", "v1alpha"):
            call = channel.stream_stream(
                f"/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo",
                request_serializer=ServerReflectionRequest.SerializeToString,
                response_deserializer=ServerReflectionResponse.FromString,
            )
            async for answer in call(iter([ServerReflectionRequest(list_services="")])):
                assert "tidegate.v1.ChatService" in [it.name for it in answer.list_services_response.service]

"""An exception's words may hold a prompt or a key: whatever breaks inside, callers get a fixed sentence and the log gets no words."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import grpc
import pytest
from prometheus_client import CollectorRegistry
from tidegate.v1.chat_service_pb2 import CompleteRequest, ConverseRequest, CountTokensRequest, Setup, StartTurn, StreamRequest
from tidegate.v1.turn_pb2 import TurnSpec

from router.app import App, build
from router.choice import Chooser
from router.config import Config, Timeouts, read_config
from router.degradation.cascade import FeaturePredictor
from router.model import Call, GenerationRequest, Sink, TurnRequest
from router.models import Model, Models
from router.pipeline import Pipeline
from router.spending import Spending
from router.telemetry import Metrics, Tracing
from router.text.decode import Decoder
from router.text.tokenizer import Tokenizer
from router.transport.grpc_api import ChatService
from router.transport.http.door import HttpDoor
from router.transport.streams import Streams
from router.upstream.access import PLAIN
from router.upstream.link import Generation, OnTokens, Owner
from router.upstream.stock import ModelFacts
from router.upstream.worker import Worker as RouterWorker
from tests.bench.http import chat, connect
from tests.bench.pools import make_pool
from tests.bench.router import Router, own_store, values_of
from tests.bench.waiting import until
from tests.bench.whole import CANARY, ask
from tests.bench.worker import Worker

SPEC = TurnSpec(messages=[ask()])


def leak() -> NoReturn:
    raise ValueError(f"prompt was: {CANARY}")


class LeakyTokenizer(Tokenizer):
    def encode_chat(self, messages: Sequence[Any], tools: Any = None, beginning: str = "", options: Any = None) -> list[int]:
        leak()


class LeakyDecoding(Tokenizer):
    def decoder(self, *, continues: bool = False) -> Decoder:
        return LeakyDecoder(self.token_bytes)


class LeakyDecoder(Decoder):
    def feed(self, ids: Sequence[int]) -> str:
        leak()


class LeakyWorker(RouterWorker):
    def submit(self, request: GenerationRequest, on_tokens: OnTokens) -> Generation:
        leak()


class LeakyPipeline(Pipeline):
    def check_model(self, name: str) -> str:
        leak()

    async def run(self, call: Call, request: TurnRequest, sink: Sink) -> None:
        leak()

    async def count_tokens(self, call: Call, request: TurnRequest) -> tuple[int, int]:
        leak()


def build_leaky(
    config: Config, tokenizer: type[Tokenizer] = Tokenizer, worker: type[RouterWorker] = RouterWorker, pipeline: type[Pipeline] = Pipeline
) -> App:
    """The app that `build` gives, with one part that breaks."""
    app, model = build(config), config.models[0]
    metrics = Metrics(CollectorRegistry())
    models = Models([Model(model, tokenizer.load(model.path), app.executor)])
    facts = ModelFacts(model.name, (2,), 2048, 266)
    pool = make_pool(lambda address, owner: worker(address, facts, config.timeouts, owner, PLAIN), model.workers)
    broken = pipeline(
        models=models,
        chooser=Chooser(models, {model.name: pool}, app.terms, FeaturePredictor(), time.monotonic),
        authenticator=app.identity.authenticator,
        spending=Spending(app.terms, app.counting.quota, app.ledger, app.identity.keys, router="router", now=time.time),
        limits=config.limits,
        salt=app.identity.keys.salt,
        tracing=Tracing(app.provider),
        metrics=metrics,
    )
    streams = Streams(broken, config.limits, config.timeouts, config.resume, metrics, exchange=None)
    http = HttpDoor(
        config=config,
        pipeline=broken,
        models=models,
        authenticator=app.identity.authenticator,
        health=app.health,
        registry=app.registry,
        streams=streams,
    )
    return replace(app, pools={model.name: pool}, streams=streams, service=ChatService(broken, streams), http=http)


@asynccontextmanager
async def run_leaky(folder: Path, **parts: Any) -> AsyncIterator[Router]:
    """A router with a broken part, and a worker behind it."""
    async with Worker(folder).running() as worker, own_store({}) as store:
        app = build_leaky(read_config(values_of(folder, worker.address, store=store)), **parts)
        async with app.running() as endpoints:
            await until(lambda: any(lane.up for lane in app.workers))
            yield Router(app, endpoints.grpc, endpoints.http)
            await until(lambda: not worker.engine.has_work())


async def all_bytes_of(call: Any) -> bytes:
    """Everything that reaches the caller of an RPC: messages, status and trailers."""
    received = b""
    try:
        if isinstance(call, grpc.aio.UnaryUnaryCall):
            received += (await call).SerializeToString()
        else:
            received += b"".join([frame.SerializeToString() async for frame in call])
    except grpc.aio.AioRpcError as error:
        received += error.code().name.encode() + (error.details() or "").encode()
        for key, value in (*(error.initial_metadata() or ()), *(error.trailing_metadata() or ())):
            received += key.encode() + (value if isinstance(value, bytes) else value.encode())
    return received


PARTS: list[dict[str, Any]] = [
    {"tokenizer": LeakyTokenizer},
    {"tokenizer": LeakyDecoding},
    {"worker": LeakyWorker},
    {"pipeline": LeakyPipeline},
]


@pytest.mark.parametrize("parts", PARTS)
async def test_a_fault_inside_reaches_callers_as_a_fixed_sentence(chatml: Path, parts: dict[str, Any]) -> None:
    """Whichever part raises, a turn on each kind of call ends as INTERNAL with the request id, and the exception's words stay inside."""
    start = ConverseRequest(start=StartTurn(turn=1, spec=SPEC))
    async with run_leaky(chatml, **parts) as router, router.stub() as stub:
        calls = [
            stub.Converse(iter((ConverseRequest(setup=Setup()), start)), metadata=(("x-request-id", "id-1"),)),
            stub.Stream(StreamRequest(spec=SPEC), metadata=(("x-request-id", "id-1"),)),
            stub.Complete(CompleteRequest(spec=SPEC), metadata=(("x-request-id", "id-1"),)),
        ]
        for call in calls:
            received = await all_bytes_of(call)
            assert b"internal error; quote the request id" in received
            assert b"id-1" in received
            assert CANARY.encode() not in received


@pytest.mark.parametrize("parts", PARTS)
async def test_a_fault_inside_reaches_http_callers_as_a_fixed_sentence(chatml: Path, parts: dict[str, Any]) -> None:
    """The same over HTTP, streamed and whole: an error of the API, with the request id in its headers."""
    async with run_leaky(chatml, **parts) as router, connect(router.http) as caller:
        for stream in (True, False):
            response = await caller.ask(value=chat(CANARY, stream=stream), x_request_id="id-1")
            assert b"internal error; quote the request id" in response.body
            assert response.headers["x-request-id"] == "id-1"
            assert CANARY not in response.body.decode() + str(response.headers)


@pytest.mark.parametrize("parts", [PARTS[0], PARTS[3]])
async def test_a_fault_while_counting_tokens_is_a_fixed_sentence(chatml: Path, parts: dict[str, Any]) -> None:
    """CountTokens hides an exception's words as the other calls do."""
    async with run_leaky(chatml, **parts) as router, router.stub() as stub:
        received = await all_bytes_of(stub.CountTokens(CountTokensRequest(messages=[ask()])))
        assert b"internal error; quote the request id" in received
        assert CANARY.encode() not in received


class LeakyTurns(Pipeline):
    async def run(self, call: Call, request: TurnRequest, sink: Sink) -> None:
        leak()


async def test_a_turn_that_breaks_the_pipeline_itself_still_fails(chatml: Path) -> None:
    """Were an exception to escape the pipeline, the turn would be told as failed on its stream, and the stream would live."""
    turns = [ConverseRequest(start=StartTurn(turn=number, spec=SPEC)) for number in (1, 2)]
    async with run_leaky(chatml, pipeline=LeakyTurns) as router, router.stub() as stub:
        frames = [frame async for frame in stub.Converse(iter((ConverseRequest(setup=Setup()), *turns)))]
    failed = [event for frame in frames for event in frame.events if event.HasField("failed")]
    assert {event.turn: event.failed.status.message for event in failed} == dict.fromkeys((1, 2), "internal error; quote the request id")


async def test_bytes_that_cannot_be_read_are_not_echoed(chatml: Path) -> None:
    """The answer to a message that is no protobuf holds nothing of the message."""
    async with run_leaky(chatml) as router, grpc.aio.insecure_channel(router.target) as channel:
        for method in ("Complete", "CountTokens"):
            call: Any = channel.unary_unary(f"/tidegate.v1.ChatService/{method}")
            received = await all_bytes_of(call(CANARY.encode() + b"\xff"))
            assert b"MESSAGE_UNREADABLE" in received
            assert CANARY.encode() not in received


async def test_a_lane_survives_a_fault_of_its_own(chatml: Path) -> None:
    """An unexpected exception in a lane's task breaks that connection only: the lane attaches anew, and its words are not logged."""
    faults = 0

    def leak_once() -> None:
        nonlocal faults
        faults += 1
        if faults == 1:
            leak()

    async with Worker(chatml).running() as worker:
        connected = RouterWorker(worker.address, ModelFacts("test", (2,), 2048, 266), Timeouts(), Owner("test", leak_once), PLAIN)
        task = asyncio.create_task(connected.run())
        await until(lambda: connected.up and faults > 1)
        task.cancel()
        await asyncio.wait({task})

"""A pipeline in front of one fake worker, without a database, and what it measured and traced."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import cast

from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from prometheus_client import CollectorRegistry

from router.auth.authenticate import Authenticator
from router.choice import Chooser
from router.config import Limits
from router.degradation.cascade import FeaturePredictor
from router.errors import TidegateError
from router.model import Call, Failed, Message, Role, TurnEvent, TurnRequest
from router.model_config import ModelConfig
from router.models import Model, Models
from router.pipeline import Pipeline
from router.telemetry import Metrics, Tracing
from router.text.tokenizer import Tokenizer
from tests.bench.pools import make_pool
from tests.bench.waiting import until
from tests.unit.router.fake_spending import FakeAuthenticator, FakeSpending
from tests.unit.router.fake_worker import FakeWorker

ASK = TurnRequest("", [Message(Role.USER, "hi")])
TRACE_ID = "0af7651916cd43dd8448eb211c80319c"
CALLER_SPAN = "b7ad6b7169203331"
CALL = Call("request-1", {"traceparent": f"00-{TRACE_ID}-{CALLER_SPAN}-01"})


class Bench:
    """A pipeline in front of one fake worker, with what it measured and traced."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.worker = FakeWorker("10.0.0.1:8001")
        self.slots = 8
        self.call = CALL
        self.events: list[TurnEvent] = []
        self.tokenizer = tokenizer
        self._registry = CollectorRegistry()
        self._exporter = InMemorySpanExporter()
        provider = TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        model = Model(ModelConfig(name="test", path=Path(), workers=("10.0.0.1:8001",)), tokenizer, ThreadPoolExecutor(1))
        self.pool = make_pool(self.worker.connect, [self.worker.address], lambda: self.slots)
        self.pool.fleet.update([self.worker.address])
        self.worker.owner.on_state()
        self.spending = FakeSpending()
        models = Models([model])
        self.pipeline = Pipeline(
            models=models,
            chooser=Chooser(models, {"test": self.pool}, self.spending.terms, FeaturePredictor(), time.monotonic),
            authenticator=cast(Authenticator, FakeAuthenticator()),
            spending=self.spending.as_spending(),
            limits=Limits(),
            salt=lambda tenant: f"salt of {tenant}",
            tracing=Tracing(provider),
            metrics=Metrics(self._registry),
        )

    async def run(self, request: TurnRequest = ASK) -> None:
        """Runs a turn whose worker is not asked, or has been told what to do."""
        await self.pipeline.run(CALL, request, self.events.extend)

    @asynccontextmanager
    async def running(self, request: TurnRequest = ASK) -> AsyncIterator[asyncio.Task[None]]:
        """A turn that the worker has taken; when left, waits until the turn has ended."""
        task = asyncio.create_task(self.run(request))
        await until(lambda: bool(self.worker.asked))
        yield task
        await asyncio.wait({task})

    def ids(self, text: str) -> list[int]:
        return self.tokenizer.encode_text(text)

    def failure(self) -> TidegateError:
        """The error of a failed turn."""
        last = self.events[-1]
        assert isinstance(last, Failed)
        return last.error

    def metric(self, name: str, **labels: str) -> float | None:
        return self._registry.get_sample_value(f"tidegate_{name}", {"model": "test", **labels})

    def spans(self) -> dict[str, ReadableSpan]:
        return {span.name: span for span in self._exporter.get_finished_spans()}

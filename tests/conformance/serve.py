"""`python -m tests.conformance.serve`: a router in front of a scripted worker, and the control endpoint of the conformance runners.

Prints one line of JSON, {"target", "control"}, and serves until its standard input ends. README.md describes the control endpoint.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from tidegate.v1.chat_service_pb2 import ConverseRequest

from router.errors import draining, resume_unavailable
from router.text.tokenizer import Tokenizer
from tests.bench.router import Router, run_router
from tests.bench.tracing import Spans
from tests.bench.waiting import until
from tests.conformance.delaying import arrive_late, run_delaying
from tests.conformance.http import Json, serve_json
from tests.conformance.play import PlayingWorker, Run, Runs
from tests.conformance.proxy import Proxy
from tests.conformance.refusing import run_refusing
from tests.conformance.table import load_cases
from tests.models import build_chatml_model

WORKERS = 1
"""With another one the router would go on there where a worker gives a turn up, and no caller would see an error."""
SETTLE_S = 3.0
"""How long the workers may take until they have seen what a case says."""


class Harness:
    """Router, workers and proxy, and what runners may do to them."""

    def __init__(self, folder: Path, stack: AsyncExitStack) -> None:
        self._folder = folder
        self._stack = stack
        self._cases = load_cases()
        self.runs = Runs(Tokenizer.load(folder))
        self.workers = [PlayingWorker(folder, self.runs) for _ in range(WORKERS)]
        self.proxy = Proxy("")
        self._spans: list[Spans] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._workers_up = True
        self._router: tuple[Router, AsyncExitStack] | None = None
        self._refusing: dict[str, str] = {}
        self._delaying = ""
        self._late: Run | None = None

    async def start(self) -> None:
        """Starts all."""
        for worker in self.workers:
            await worker.start()
            self._stack.push_async_callback(worker.stop)
        await self._replace_router()
        for error in (draining(), resume_unavailable()):
            self._refusing[error.reason] = await self._stack.enter_async_context(run_refusing(error, self._lead_to_router))
        self._delaying = await self._stack.enter_async_context(run_delaying(self._delay))
        await self.proxy.open()
        self._stack.callback(self.proxy.close)

    async def begin(self, asked: Json) -> Json:
        """A run of a case begins; all is up again. Gives what the caller's message must begin with, and a trace header."""
        await self._settle()
        run = self.runs.begin(self._cases[asked["case"]], self._count_kept())
        return {"marker": run.marker, "traceparent": run.traceparent}

    async def act(self, asked: Json) -> Json:
        """Does what an action says; the caller's own actions are noted with their time."""
        match asked["do"]:
            case "cancel" | "break" | "leave":
                self.runs.find(asked["marker"]).left_at = time.monotonic()
            case "cut":
                self.proxy.cut(asked.get("after_bytes", 0))
            case "listener":
                await self._switch(asked, self._switch_listener)
            case "workers":
                await self._switch(asked, self._switch_workers)
            case "drain":
                await self._drain(asked["grace_s"])
            case "refuse":
                self.proxy.upstream = self._refusing[asked["reason"]]
                self.proxy.cut()
            case "delay":
                self._late = self.runs.find(asked["marker"])
                self.proxy.upstream = self._delaying
                self.proxy.cut()
        return {}

    async def end(self, asked: Json) -> Json:
        """The run is over: waits until the workers have seen what the case says, and tells what they have not."""
        run = self.runs.find(asked["marker"])
        with suppress(AssertionError):
            await until(lambda: not list(self._faults(run)), within_s=SETTLE_S)
        return {"faults": list(self._faults(run)), "calls": run.calls, "cancelled": len(run.cancelled_at), "cancelled_after_s": _lag(run)}

    def _faults(self, run: Run) -> Any:
        seen = {"calls": run.calls, "cancelled": len(run.cancelled_at), "traced": self._is_traced(run), "late": run.late}
        for name, wanted in run.case["worker_sees"].items():
            match name:
                case "calls_at_most" if run.calls > wanted:
                    yield f"calls: {run.calls}, more than {wanted}"
                case "cancelled_within_s" if (_lag(run) or 0.0) > wanted:
                    yield f"cancelled: {_lag(run)} s after the caller left, not within {wanted} s"
                case "calls" | "cancelled" | "traced" | "late" if seen[name] != wanted:
                    yield f"{name}: {seen[name]}, not {wanted}"
        if any(worker.engine.has_work() for worker in self.workers):
            yield "a generation runs on"
        if self._count_kept() - run.kept_before > run.case["worker_sees"].get("kept_at_most", 0):
            yield "a stream is kept to which nobody will come back"

    def _count_kept(self) -> int:
        """Streams that the router keeps for callers who are not there."""
        return 0 if self._router is None else int(self._router[0].app.registry.get_sample_value("tidegate_detached_streams") or 0)

    def _count_resumed(self) -> int:
        """Streams that the router has had taken up."""
        return 0 if self._router is None else int(self._router[0].app.registry.get_sample_value("tidegate_resumed_streams_total") or 0)

    def _is_traced(self, run: Run) -> bool:
        spans = (span for spans in self._spans for span in spans.turns)
        return any(span.context is not None and span.context.trace_id == run.trace_id for span in spans)

    async def _switch(self, asked: Json, switch: Any) -> None:
        """Up or down, and back after `for_s` where that is given."""
        await switch(asked["up"])
        if "for_s" in asked:
            self._start(self._switch_later(switch, not asked["up"], asked["for_s"]))

    async def _switch_later(self, switch: Any, up: bool, after_s: float) -> None:
        await asyncio.sleep(after_s)
        await switch(up)

    async def _switch_listener(self, up: bool) -> None:
        if up:
            await self.proxy.open()
        else:
            self.proxy.close()

    async def _switch_workers(self, up: bool) -> None:
        if up == self._workers_up:
            return
        self._workers_up = up
        for worker in self.workers:
            await (worker.start() if up else worker.stop())
        assert self._router is not None
        lanes = list(self._router[0].app.workers)
        await until(lambda: all(lane.up == up for lane in lanes))

    async def _drain(self, grace_s: float) -> None:
        """A new router takes all new connections; the old one drains."""
        assert self._router is not None
        old, stack = self._router
        await self._replace_router()
        self._start(self._stop(old, stack, grace_s))
        await asyncio.sleep(0.05)  # so that what the caller does next finds the old router draining

    async def _stop(self, router: Router, stack: AsyncExitStack, grace_s: float) -> None:
        await asyncio.gather(*(door.drain(grace_s) for door in (router.app.streams, router.app.service)))
        await stack.aclose()

    async def _replace_router(self) -> None:
        stack = AsyncExitStack()
        router = await stack.enter_async_context(run_router(self._folder, *(worker.address for worker in self.workers)))
        self._stack.push_async_callback(stack.aclose)
        self._router = router, stack
        self._spans.append(Spans(router))
        self._lead_to_router()

    def _lead_to_router(self) -> None:
        """New connections go there."""
        assert self._router is not None
        self.proxy.upstream = self._router[0].target

    def _delay(self, request: ConverseRequest) -> None:
        """An attempt to resume is late: its connection breaks, and it comes when a newer one has the stream."""
        assert self._late is not None
        self._lead_to_router()
        self.proxy.cut()
        self._start(self._come_late(self._late, request))

    async def _come_late(self, run: Run, request: ConverseRequest) -> None:
        before = self._count_resumed()
        await until(lambda: self._count_resumed() > before, within_s=SETTLE_S)
        assert self._router is not None
        run.late = await arrive_late(self._router[0].target, request)

    async def _settle(self) -> None:
        """What the run before has set going is over, and what it has taken down is up."""
        if self._tasks:
            await asyncio.wait(self._tasks)
        await self._switch_listener(up=True)
        await self._switch_workers(up=True)

    def _start(self, coroutine: Any) -> None:
        task = asyncio.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _lag(run: Run) -> float | None:
    """Seconds from the caller's leaving to the worker's seeing it."""
    return round(run.cancelled_at[-1] - run.left_at, 3) if run.cancelled_at and run.left_at else None


@asynccontextmanager
async def run_harness() -> AsyncIterator[tuple[str, str]]:
    """A running harness: the router's address, host:port, and the control endpoint's URL."""
    with tempfile.TemporaryDirectory() as folder:
        async with AsyncExitStack() as stack:
            harness = Harness(build_chatml_model(Path(folder)), stack)
            await harness.start()
            server = await serve_json({"/begin": harness.begin, "/do": harness.act, "/end": harness.end})
            stack.callback(server.close)
            port = server.sockets[0].getsockname()[1]
            yield f"127.0.0.1:{harness.proxy.port}", f"http://127.0.0.1:{port}"


async def main() -> None:
    """Serves until standard input ends."""
    async with run_harness() as (target, control):
        print(json.dumps({"target": target, "control": control}), flush=True)
        await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(main())

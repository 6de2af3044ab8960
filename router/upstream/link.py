"""A link: what one connection to a worker offers, whichever kind of worker it is, and the generations that run on it.

lane.py is the link to our own Triton model, direct.py the link to TensorRT-LLM's; worker.py finds out which it takes.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from tritonclient.grpc import service_pb2 as triton
from tritonclient.grpc.service_pb2_grpc import GRPCInferenceServiceStub

from router.config import Timeouts
from router.errors import TidegateError, describe_fault, internal
from router.model import GenerationRequest, WorkerDelta, WorkerDescription, WorkerLoad

OnTokens = Callable[[WorkerDelta], None]


class Receipt(NamedTuple):
    """What a worker made for a router that lost its connection, by the text that the router had given with the request."""

    account: str
    tokens: int
    cached_tokens: int


@dataclass(frozen=True, slots=True)
class Owner:
    """Whose links these are: the router's name, and who hears what they tell. None of these may wait.

    `on_state`: the worker came up or went down. `on_freed`: turns of other routers ended there, so it may take more of this one's; that may
    come with every engine step. `on_receipts` takes receipts for what was lost, `on_kv_events` KV cache events, oldest first. `check`
    raises LinkBroken for a worker that is not to be used.
    """

    router: str
    on_state: Callable[[], None]
    on_freed: Callable[[], None] = lambda: None
    on_receipts: Callable[[Sequence[Receipt]], None] = lambda receipts: None
    on_kv_events: Callable[[Sequence[Mapping[str, Any]]], None] = lambda events: None
    check: Callable[[WorkerDescription], None] = lambda description: None


log = logging.getLogger("tidegate.link")


class LinkBroken(Exception):
    """The link cannot go on; the message says why, for the log."""


class Generation:
    """One generation on a link. Close it in `finally`: what still runs then is cancelled in the engine."""

    __slots__ = ("_close", "_ended", "_progress", "has_tokens", "number", "on_tokens")

    def __init__(self, number: int, on_tokens: OnTokens, close: Callable[[Generation], None]) -> None:
        self.number = number
        self.on_tokens = on_tokens
        self.has_tokens = False
        self._progress = time.monotonic()
        self._close = close
        self._ended: asyncio.Future[TidegateError | None] = asyncio.get_running_loop().create_future()

    async def wait(self) -> None:
        """Returns when the worker ended it or it was closed. Raises WorkerError when it cannot go on."""
        error = await self._ended
        if error is not None:
            raise error

    def close(self) -> None:
        """Ends it. Does nothing when it has ended."""
        self._close(self)
        self.end(None)

    def end(self, error: TidegateError | None) -> None:
        """Wakes who waits."""
        if not self._ended.done():
            self._ended.set_result(error)

    def take(self, delta: WorkerDelta, now: float) -> None:
        """Hands the turn what the worker sent at `now` (monotonic); a turn that fails on it ends here and hurts no other."""
        self._progress, self.has_tokens = now, True
        try:
            self.on_tokens(delta)
        except Exception as error:
            log.error("a turn failed on its tokens: %s", describe_fault(error))
            self._close(self)
            self.end(internal())
        if delta.finish:
            self.end(None)

    def is_stalled(self, now: float, limits: Timeouts) -> bool:
        """Whether the worker has been silent about it for too long."""
        return now - self._progress > (limits.idle_s if self.has_tokens else limits.first_token_s)


class Link(Protocol):
    """One connection to a worker, from open to broken; used from one event loop, and not again once broken."""

    @property
    def description(self) -> WorkerDescription | None:
        """What the worker is; None while it takes no generations."""

    @property
    def load(self) -> WorkerLoad:
        """What is known of the worker's load."""

    @property
    def running(self) -> int:
        """Generations that run here for this router."""

    @property
    def others(self) -> int:
        """Generations of other routers there, as far as is known."""

    @property
    def silence_s(self) -> float:
        """Seconds for which the worker has said nothing although it should have."""

    def submit(self, request: GenerationRequest, on_tokens: OnTokens) -> Generation:
        """Starts a generation. `on_tokens` must not wait. Raises WorkerError NO_WORKER."""

    async def serve(self) -> None:
        """Keeps the link open. When it breaks, fails all that runs and raises LinkBroken or grpc.RpcError."""


async def exchange(
    stub: GRPCInferenceServiceStub, message: triton.ModelInferRequest, headers: Mapping[str, str]
) -> AsyncGenerator[triton.ModelStreamInferResponse, None]:
    """The responses to one request, to the last, on a stream of its own; `headers` are its trace context, which Triton reads once a stream.

    A stream that is left early is cancelled, and with it the request if it still runs. Otherwise it is half-closed after the last
    response and read to its end: half-closed at once, Triton (2.51) loses more traces; cancelled at the last response, it may never unload
    the model. Raises RpcError.
    """
    message.parameters["triton_enable_empty_final_response"].bool_param = True
    call = stub.ModelStreamInfer(metadata=tuple(headers.items()))
    try:
        await call.write(message)
        async for response in call:
            yield response
            if response.error_message or response.infer_response.parameters["triton_final_response"].bool_param:
                await call.done_writing()
    finally:
        call.cancel()


async def cancel_all(tasks: set[asyncio.Task[None]]) -> None:
    """Cancels tasks and waits until they have ended."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def watch_period(limits: Timeouts) -> float:
    """Seconds between two looks at what stands still: often enough for the shortest limit."""
    return min(1.0, limits.worker_silence_s / 4, limits.idle_s / 4, limits.first_token_s / 4)

"""One ModelStreamInfer: many requests on a stream, whose answers interleave as the engine makes them.

As in Triton, a request that fails is told as text on a stream that goes on, half-closing lets what runs complete, and leaving the stream
ends all its requests. With the header `triton_grpc_error: true` the first failure ends the stream instead, with a status. A request that is
sent again with the tensor `stop` ends the first one of its id, as TensorRT-LLM's model does it.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Iterator

from tritonclient.grpc.service_pb2 import ModelInferRequest, ModelStreamInferResponse

from router.config import Limits
from router.errors import TidegateError, describe_fault, internal, reader_too_slow, too_many_turns
from router.model import Call
from router.transport.kserve.answers import Notice, Reply
from router.transport.kserve.asked import Asked, read_asked
from router.transport.kserve.catalogue import Catalogue
from router.transport.kserve.turns import Turns
from router.transport.requests import readable
from router.transport.turns import cancel_turn

STATUS_HEADER = ("triton_grpc_error", "true")

log = logging.getLogger("tidegate.transport")


class InferStream:
    """The state of one stream."""

    def __init__(self, call: Call, turns: Turns, catalogue: Catalogue, limits: Limits) -> None:
        self._call = call
        self._turns = turns
        self._catalogue = catalogue
        self._limits = limits
        self._fails_whole = STATUS_HEADER in call.credentials.headers
        self._running: dict[Reply, asyncio.Task[None]] = {}
        self._ready: deque[Reply | Notice] = deque()
        self._news = asyncio.Event()
        self._last_input = self._closed = False
        self._entry: Reply | Notice
        self._messages: Iterator[ModelStreamInferResponse] = iter(())
        self.fault: TidegateError | None = None

    async def read(self, requests: AsyncIterator[ModelInferRequest]) -> None:
        """A task: takes requests until the caller has half-closed."""
        try:
            async for request in requests:
                self._require_reader()
                self.receive(readable(request))
            self.finish_input()
        except TidegateError as error:
            self.fail(error)
        except Exception as error:
            log.error("reading a stream failed; request %s: %s", self._call.request_id, describe_fault(error))
            self.fail(internal())

    async def take(self) -> ModelStreamInferResponse | None:
        """The next response, waiting for one; None at the end. Raises a request's failure where the caller wants it so."""
        while (message := next(self._messages, None)) is None:
            if self._ready:
                self._entry = self._ready.popleft()
                self._messages = iter(self._entry)
            elif self._closed:
                return None
            else:
                await self._news.wait()
                self._news.clear()
        if self._fails_whole and message.error_message and self._entry.failure is not None:
            raise self._entry.failure
        return message

    def receive(self, request: ModelInferRequest) -> None:
        """Takes one request; what is wrong with it is told on the stream."""
        try:
            asked = read_asked(request, self._catalogue.find(request.model_name, request.model_version))
            if asked.stop:
                self._stop(asked)
            else:
                self._start(asked)
        except TidegateError as error:
            self._put(Notice(request.model_name, request.id, error))

    def fail(self, error: TidegateError) -> None:
        """A fault of the stream: what is ready is still sent, then it ends with this error."""
        self.fault = error
        self._end()

    def finish_input(self) -> None:
        """No more requests come, or are taken: the stream ends when those that run have."""
        self._last_input = True
        self._end_if_done()

    async def close(self) -> None:
        """Cancels the turns that still run, and waits until they have left the engine."""
        self._closed = True
        tasks = list(self._running.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _require_reader(self) -> None:
        """Turns are bounded, refusals are not: a caller may send requests without end and read nothing. Raises CallerError."""
        if len(self._ready) > 2 * self._limits.max_turns_per_stream:
            raise reader_too_slow()

    def _start(self, asked: Asked) -> None:
        most = self._limits.max_turns_per_stream
        if len(self._running) >= most:
            raise too_many_turns(most)
        reply = Reply(asked, self._put)
        task = self._running[reply] = self._turns.start(self._call, reply)
        task.add_done_callback(lambda _: self._forget(reply))

    def _stop(self, asked: Asked) -> None:
        for reply, task in self._running.items():
            if reply.asked.id == asked.id:
                cancel_turn(task)
        self._put(Notice(asked.served.name, asked.id))

    def _forget(self, reply: Reply) -> None:
        del self._running[reply]
        self._end_if_done()

    def _put(self, entry: Reply | Notice) -> None:
        self._ready.append(entry)
        self._news.set()

    def _end_if_done(self) -> None:
        if self._last_input and not self._running:
            self._end()

    def _end(self) -> None:
        self._closed = True
        self._news.set()

"""A worker at an address: which kind it is, and a link to it that is made anew whenever it breaks.

What Triton tells of the model's configuration decides. Our model sends lane frames, so it has their outputs, and lane.py speaks to it; the
stock model has TensorRT-LLM's inputs and batches, and direct.py speaks to it. An address may change its kind between two connections.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace

import grpc
from tritonclient.grpc.model_config_pb2 import ModelConfig
from tritonclient.grpc.service_pb2 import ModelConfigRequest
from tritonclient.grpc.service_pb2_grpc import GRPCInferenceServiceStub

from router.config import Timeouts
from router.errors import describe_fault, no_worker
from router.logs import fields
from router.model import GenerationRequest, WorkerDescription, WorkerLoad
from router.upstream import contract, stock
from router.upstream.access import Access
from router.upstream.direct import Direct
from router.upstream.lane import Lane
from router.upstream.link import Generation, Link, LinkBroken, OnTokens, Owner

_BACKOFF_S = (0.05, 0.1, 0.2, 0.5, 1.0)
_SHARES = (
    "it reuses cached prefixes and cannot keep tenants' apart, so times tell one what others asked: start it with "
    "enable_kv_cache_reuse=false, or accept that with shared_prefixes = true for its model"
)

log = logging.getLogger("tidegate.worker")


class Worker:
    """A worker of one model. `run()` is its task; everything else is called from the same event loop."""

    def __init__(self, address: str, facts: stock.ModelFacts, timeouts: Timeouts, owner: Owner, access: Access) -> None:
        self.address = address
        self._access = access
        self._facts = facts
        self._timeouts = timeouts
        self._owner = replace(owner, on_state=self._take_state, check=self._check)
        self._on_state = owner.on_state
        self._link: Link | None = None
        self._failures = 0
        self._was_up = False
        self._trouble = ""

    @property
    def description(self) -> WorkerDescription | None:
        """What the worker is; None while it takes no generations."""
        return self._link.description if self._link else None

    @property
    def up(self) -> bool:
        """Whether generations may be submitted."""
        return self.description is not None

    @property
    def running(self) -> int:
        """Generations that run here for this router."""
        return self._link.running if self._link else 0

    @property
    def silence_s(self) -> float:
        """Seconds for which the worker has said nothing although it should have: more than a few mean that its engine hangs."""
        return self._link.silence_s if self._link else 0.0

    @property
    def load(self) -> WorkerLoad:
        """The worker's load as far as it is known; zeros without a connection."""
        return self._link.load if self._link else WorkerLoad()

    @property
    def slots(self) -> int:
        """How many generations of this router it runs at once; what other routers run there is theirs."""
        link = self._link
        told = link.description if link else None
        return max(0, told.max_sequences - link.others) if link and told else 0

    def submit(self, request: GenerationRequest, on_tokens: OnTokens) -> Generation:
        """Starts a generation. `on_tokens` is called as tokens arrive and must not wait. Raises WorkerError NO_WORKER."""
        if self._link is None:
            raise no_worker()
        return self._link.submit(request, on_tokens)

    async def run(self) -> None:
        """Keeps a link until cancelled."""
        while True:
            try:
                await self._serve()
            except (LinkBroken, grpc.RpcError) as error:
                self._note_trouble(_describe(error))
            except Exception as error:
                log.error("worker %s: %s", self.address, describe_fault(error), extra=fields(self.address))
            await asyncio.sleep(_BACKOFF_S[min(self._failures, len(_BACKOFF_S) - 1)])
            self._failures += 1

    async def _serve(self) -> None:
        """One connection, from opening it to its end."""
        async with self._access.connect(self.address) as channel:
            stub = GRPCInferenceServiceStub(channel)
            question = ModelConfigRequest(name=contract.MODEL)
            told = await stub.ModelConfig(question, timeout=self._timeouts.worker_silence_s)
            self._link = self._choose(stub, told.config)
            try:
                await self._link.serve()
            finally:
                self._link = None

    def _choose(self, stub: GRPCInferenceServiceStub, config: ModelConfig) -> Link:
        if contract.is_lane_model(config):
            return Lane(self.address, stub, self._timeouts, self._owner, self._access)
        if stock.is_stock(config):
            model = stock.read_model(config, self._facts)
            self._check(model.description)
            return Direct(self.address, stub, model, self._timeouts, self._owner)
        raise LinkBroken(f"its model {contract.MODEL} is neither Tidegate's nor TensorRT-LLM's with decoupled responses")

    def _check(self, description: WorkerDescription) -> None:
        if description.vocabulary != self._facts.vocabulary:  # its answers would be nonsense, and nobody would know why
            numbers = f"{description.vocabulary} token ids; this model has {self._facts.vocabulary}"
            raise LinkBroken(f"it serves {description.model} with {numbers}")
        if not (description.isolates_salts or self._facts.shared_prefixes):
            raise LinkBroken(_SHARES)

    def _note_trouble(self, trouble: str) -> None:
        """Says once what is wrong, as long as it stays so: a worker that is away is tried for again each second."""
        if trouble != self._trouble:
            log.warning("worker %s: %s", self.address, trouble, extra=fields(self.address))
        self._trouble = trouble

    def _take_state(self) -> None:
        if self.description and not self._was_up:
            self._failures, self._trouble = 0, ""
            log.info("worker %s is up: %s", self.address, _tell(self.description), extra=fields(self.address))
        self._was_up = self.up
        self._on_state()


def _tell(worker: WorkerDescription) -> str:
    runs = f"{worker.max_sequences} sequences at once, each of at most {worker.context_tokens} tokens"
    return f"{worker.model} on {worker.engine} ({worker.profile}), {runs}, in a KV cache of {worker.pool_tokens}"


def _describe(error: Exception) -> str:
    return f"{error.code().name}: {error.details()}" if isinstance(error, grpc.aio.AioRpcError) else str(error)

"""Who reaches a worker's port without being a router of ours gets nothing from it and changes nothing there."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import grpc
import pytest
import tidegate
from tritonclient.grpc import service_pb2 as triton
from tritonclient.grpc.service_pb2_grpc import GRPCInferenceServiceStub

from router.config import ConfigInvalid
from router.model import GenerationRequest, Sampling
from router.model_config import WorkerLink
from router.upstream import contract
from router.upstream.access import Access
from router.upstream.link import LinkBroken
from tests.bench.authority import Authority
from tests.bench.router import run_router
from tests.bench.waiting import until
from tests.bench.whole import ask, run_bench
from tests.bench.worker import Wait, Worker

OURS = "o" * 48
OTHER = "x" * 48
ASKED = GenerationRequest([5, 6], 10, Sampling(), account="account")


def write(folder: Path, *secrets: str) -> Path:
    path = folder / "credential"
    path.write_text("\n".join(secrets) + "\n")
    return path


def signer(folder: Path, secret: str) -> Callable[[str], str]:
    (folder / secret[0]).mkdir()
    return Access(WorkerLink(credential=write(folder / secret[0], secret))).sign


async def answer(worker: Worker, message: triton.ModelInferRequest) -> str:
    """What the worker says to a request on a stream of its own: the first error, empty when it is served."""

    async def requests() -> AsyncIterator[triton.ModelInferRequest]:
        message.parameters["triton_enable_empty_final_response"].bool_param = True
        yield message

    async with grpc.aio.insecure_channel(worker.address) as channel:
        call = GRPCInferenceServiceStub(channel).ModelStreamInfer(requests())
        async for response in call:
            return str(response.error_message)
    return ""


OPERATIONS: dict[str, Callable[[str], triton.ModelInferRequest]] = {
    "attach": lambda lane: contract.attach(lane, "router-1"),
    "generate": lambda lane: contract.generate(lane, 1, ASKED),
    "cancel": lambda lane: contract.cancel(lane, [1]),
    "ack": lambda lane: contract.acknowledge(lane, 1),
    "alone": lambda lane: _leave_lane(contract.generate(lane, 1, ASKED)),
}


def _leave_lane(message: triton.ModelInferRequest) -> triton.ModelInferRequest:
    del message.parameters["lane"]
    return message


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("shown", ["nothing", "another secret", "another lane's", "the secret", "no text"])
async def test_every_operation_wants_a_credential(chatml: Path, tmp_path: Path, operation: str, shown: str) -> None:
    """Without one, with one of another secret and with that of another lane it is refused, and the engine is not asked."""
    ours, other = signer(tmp_path, OURS), signer(tmp_path, OTHER)
    credentials: dict[str, Any] = {"another secret": other("lane-1"), "another lane's": ours("lane-2"), "the secret": OURS}
    async with Worker(chatml, credential=write(tmp_path, OURS)).running() as worker:
        message = OPERATIONS[operation]("lane-1")
        if shown == "no text":
            message.parameters["credential"].int64_param = 1
        elif shown in credentials:
            message.parameters["credential"].string_param = credentials[shown]
        assert "credential" in await answer(worker, message)
        assert worker.calls == 0


async def test_a_router_with_the_secret_is_served(chatml: Path, tmp_path: Path) -> None:
    """As before; one with another secret has no worker, and says why in its log."""
    worker = Worker(chatml, credential=write(tmp_path, OURS))
    async with run_bench(chatml, worker, worker_link={"credential": str(write(tmp_path, OURS))}) as router, router.client() as client:
        assert await client.chat(ask()).text() == "ok"


async def test_the_secret_is_changed_while_turns_run(chatml: Path, tmp_path: Path) -> None:
    """The new one is added, then put first, then the old one goes: a turn that began before goes on, and later ones are served."""
    path = write(tmp_path, OURS)
    worker = Worker(chatml, lambda request: ["a", Wait(1000)] if request.number == 1 else ["b"], credential=path)
    async with run_bench(chatml, worker, worker_link={"credential": str(path)}) as router, router.client() as client:
        async with client.session() as session:
            early = await session.start(ask())
            await until(lambda: worker.calls == 1)
            for at, secrets in enumerate([(OURS, OTHER), (OTHER, OURS), (OTHER,)], 2):
                write(tmp_path, *secrets)
                assert await client.chat(ask()).text() == "b"
                assert worker.calls == at
            await early.cancel()
            await until(lambda: not worker.engine.has_work())


@pytest.mark.parametrize("secret", ["", "short", "\n" + OURS])
def test_a_secret_that_can_be_guessed_is_refused(tmp_path: Path, secret: str) -> None:
    """At the start, by its file's name."""
    with pytest.raises(ConfigInvalid, match="credential"):
        Access(WorkerLink(credential=write(tmp_path, secret)))


async def test_a_file_that_goes_away_leaves_the_secret_in_force(tmp_path: Path) -> None:
    """It is replaced in two moves, or its volume is away for a moment."""
    path = write(tmp_path, OURS)
    access = Access(WorkerLink(credential=path))
    before = access.sign("lane")
    path.unlink()
    assert access.sign("lane") == before


async def test_certificates_are_renewed_without_a_restart(chatml: Path, tmp_path: Path) -> None:
    """A router whose certificate the worker does not take has no worker, and has one soon after its files were replaced."""
    ours, foreign = Authority(tmp_path / "ours"), Authority(tmp_path / "foreign")
    ours.issue("server", "IP:127.0.0.1")
    for authority in (ours, foreign):
        authority.issue("router", "DNS:router")
    worker = Worker(chatml, tls=ours.server())
    link = {"ca": ours.link("router")["ca"], "certificate": str(tmp_path / "tls.pem"), "key": str(tmp_path / "tls.key")}

    def show(authority: Authority) -> None:
        for end in ("pem", "key"):
            (tmp_path / f"tls.{end}").write_bytes(authority.read(f"router.{end}"))

    show(foreign)
    async with worker.running(), run_router(chatml, worker.address, worker_link=link, wait_up=False) as router, router.client() as client:
        with pytest.raises(tidegate.TidegateError, match="NO_WORKER"):
            await client.chat(ask()).text()
        show(ours)
        await until(lambda: all(it.up for it in router.app.workers))
        assert await client.chat(ask()).text() == "ok"


async def test_a_worker_that_is_found_elsewhere_is_not_reached_in_plain_text(tmp_path: Path) -> None:
    """Whoever tells where workers are cannot make the router send prompts in clear text."""
    with pytest.raises(LinkBroken, match=r"worker_link\.ca"):
        Access(WorkerLink()).connect("10.0.0.5:8001")

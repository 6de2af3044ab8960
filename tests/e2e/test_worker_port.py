"""Triton's own walls around a worker, with the real binary: what `tidegate serve` off loopback listens with."""

from __future__ import annotations

import asyncio
import urllib.error
import urllib.request
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import pytest
import pytest_asyncio
from tritonclient.grpc import service_pb2 as triton
from tritonclient.grpc.service_pb2_grpc import GRPCInferenceServiceStub

from server.build import TEMPLATE, render_repository
from server.exposure import MutualTls
from server.launch import Triton
from server.triton_options import TritonOptions
from tests.bench.authority import Authority
from tests.bench.router import run_router
from tests.bench.whole import ask
from tests.e2e.scripted import killed_at_end


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    made = Authority(tmp_path_factory.mktemp("tls") / "authority")
    made.issue("server", "IP:127.0.0.1")
    made.issue("router", "DNS:router")
    (made.folder / "credential").write_text("s" * 48)
    return made


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def worker(authority: Authority, folder: Path, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Triton]:
    credential = str(authority.folder / "credential")
    values = {"engine": "scripted", "model_dir": str(folder), "lane_credential": credential}
    repository = render_repository(TEMPLATE, tmp_path_factory.mktemp("walls") / "repository", values)
    tls = MutualTls(authority.folder / "server.pem", authority.folder / "server.key", authority.folder / "ca.pem")
    async with killed_at_end(await Triton.start(TritonOptions(repository, tls=tls))) as running:
        yield running


async def test_a_router_with_certificate_and_credential_is_served(worker: Triton, authority: Authority, folder: Path) -> None:
    """Turns go the whole way, encrypted."""
    link = authority.link("router") | {"credential": str(authority.folder / "credential")}
    async with run_router(folder, worker.endpoints.grpc, worker_link=link) as router, router.client() as client:
        assert await client.chat(ask(), max_output_tokens=4).text()


@pytest.mark.parametrize("credentials", ["none", "no certificate"])
async def test_without_a_certificate_nothing_is_told(worker: Triton, authority: Authority, credentials: str) -> None:
    """Not even whether it is ready."""
    options = (("grpc.enable_retries", 0),)
    channel = (
        grpc.aio.insecure_channel(worker.endpoints.grpc, options=options)
        if credentials == "none"
        else grpc.aio.secure_channel(worker.endpoints.grpc, authority.client(), options=options)
    )
    async with channel:
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await GRPCInferenceServiceStub(channel).ServerReady(triton.ServerReadyRequest(), timeout=30.0)
    assert refused.value.code() is grpc.StatusCode.UNAVAILABLE


async def test_what_no_router_needs_is_refused_to_routers_too(worker: Triton, authority: Authority) -> None:
    """Shared memory, which CVE-2025-23319 goes through, and whatever changes models, traces and logs."""
    async with grpc.aio.secure_channel(worker.endpoints.grpc, authority.client("router")) as channel:
        stub = GRPCInferenceServiceStub(channel)
        assert (await stub.ServerReady(triton.ServerReadyRequest())).ready
        for ask_for in (
            stub.SystemSharedMemoryRegister(triton.SystemSharedMemoryRegisterRequest(name="a", key="/a", byte_size=8)),
            stub.RepositoryModelUnload(triton.RepositoryModelUnloadRequest(model_name="tensorrt_llm")),
            stub.TraceSetting(triton.TraceSettingRequest()),
            stub.LogSettings(triton.LogSettingsRequest()),
        ):
            with pytest.raises(grpc.aio.AioRpcError, match="restricted"):
                await ask_for


@pytest.mark.parametrize("path", ["/v2/models/tensorrt_llm/infer", "/v2/models/tensorrt_llm/config", "/v2/repository/index"])
async def test_http_is_for_probes_alone(worker: Triton, path: str) -> None:
    """Kubernetes asks there whether Triton is ready; nothing else is answered."""
    assert await asyncio.to_thread(_status, f"http://{worker.endpoints.http}/v2/health/ready") == 200
    assert await asyncio.to_thread(_status, f"http://{worker.endpoints.http}{path}", b"{}") == 403


def _status(url: str, body: bytes | None = None) -> int:
    try:
        with urllib.request.urlopen(urllib.request.Request(url, body), timeout=30) as response:
            return int(response.status)
    except urllib.error.HTTPError as error:
        return error.code

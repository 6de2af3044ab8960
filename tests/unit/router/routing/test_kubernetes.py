"""Workers from EndpointSlices."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from router.routing.discovery import DiscoveryFailed
from router.routing.kubernetes import EndpointSlices, find_api_server, read_slice
from tests.bench.waiting import until
from tests.unit.router.routing.fake_kubernetes import FakeKubernetes, make_identity, make_slice
from tests.unit.router.routing.test_discovery import A, B, C, following, seen_is


@pytest.fixture
async def kubernetes(tmp_path: Path) -> AsyncIterator[FakeKubernetes]:
    async with FakeKubernetes(tmp_path).running() as kubernetes:
        yield kubernetes


def make_source(kubernetes: FakeKubernetes, port: str = "grpc") -> EndpointSlices:
    """As a pod would make it."""
    parts = urlsplit(kubernetes.url)
    environment = {"KUBERNETES_SERVICE_HOST": str(parts.hostname), "KUBERNETES_SERVICE_PORT": str(parts.port)}
    return EndpointSlices(find_api_server(environment, kubernetes.account), "models", "workers", port)


async def test_the_ready_pods_of_all_slices_are_the_workers(kubernetes: FakeKubernetes) -> None:
    """On the port of that name or number."""
    kubernetes.put(make_slice("one", "10.0.0.1", not_ready="10.0.0.9"))
    kubernetes.put(make_slice("two", "10.0.0.2"))
    for port in ("grpc", "8001"):
        async with following(make_source(kubernetes, port)) as seen:
            await until(seen_is(seen, [A, B]))


async def test_changes_are_followed(kubernetes: FakeKubernetes) -> None:
    """Slices come, change and go; what only tells the version changes nothing."""
    kubernetes.put(make_slice("one", "10.0.0.1"))
    async with following(make_source(kubernetes)) as seen:
        await until(lambda: len(kubernetes.watches) == 1)
        kubernetes.put(make_slice("two", "10.0.0.2"))
        await until(seen_is(seen, [A], [A, B]))
        kubernetes.bookmark()
        kubernetes.put(make_slice("one", "10.0.0.3", not_ready="10.0.0.1"))
        await until(seen_is(seen, [A], [A, B], [B, C]))
        kubernetes.delete("one")
        await until(seen_is(seen, [A], [A, B], [B, C], [B]))
    assert kubernetes.lists == 1


async def test_a_watch_that_ends_goes_on_where_it_was(kubernetes: FakeKubernetes) -> None:
    """Nothing is listed again."""
    kubernetes.put(make_slice("one", "10.0.0.1"))
    async with following(make_source(kubernetes)) as seen:
        await until(lambda: len(kubernetes.watches) == 1)
        version = kubernetes.bookmark()
        kubernetes.end_watches()
        await until(lambda: len(kubernetes.watches) == 2)
        kubernetes.put(make_slice("two", "10.0.0.2"))
        await until(seen_is(seen, [A], [A, B]))
    assert (kubernetes.watches[1], kubernetes.lists) == (version, 1)


@pytest.mark.parametrize(
    "line",
    [
        '{"type": "ERROR", "object": {"kind": "Status", "code": 410, "reason": "Expired"}}',
        '{"type": "MODIFIED", "object": {"metadata": {}}}',
        '{"type": "MODIFIED"',
        "[]",
    ],
)
async def test_a_watch_that_goes_wrong_is_listed_anew(kubernetes: FakeKubernetes, line: str) -> None:
    """Its place is too old, or what it says makes no sense; the workers stay meanwhile."""
    kubernetes.put(make_slice("one", "10.0.0.1"))
    async with following(make_source(kubernetes)) as seen:
        await until(lambda: len(kubernetes.watches) == 1)
        kubernetes.slices["two"] = make_slice("two", "10.0.0.2")
        kubernetes.tell_raw(line)
        await until(seen_is(seen, [A], [A, B]))
    assert kubernetes.lists == 2


async def test_a_renewed_token_is_used(kubernetes: FakeKubernetes, caplog: pytest.LogCaptureFixture) -> None:
    """It is read for each request; one that is refused is said, without the token."""
    kubernetes.put(make_slice("one", "10.0.0.1"))
    kubernetes.token = "second-token"
    async with following(make_source(kubernetes)) as seen:
        await until(lambda: "the API server answers 401" in caplog.text)
        kubernetes.write_token("second-token")
        await until(seen_is(seen, [A]))
    assert "second-token" not in caplog.text


async def test_a_server_of_another_authority_is_not_asked(
    kubernetes: FakeKubernetes, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It would get the token."""
    caplog.set_level(logging.WARNING)
    kubernetes.put(make_slice("one", "10.0.0.1"))
    make_identity(tmp_path)
    async with following(make_source(kubernetes)) as seen:
        await until(lambda: "ClientConnectorCertificateError" in caplog.text)
    assert (seen, kubernetes.lists) == ([], 0)


def test_a_slice_may_lack_what_is_optional() -> None:
    """A service without endpoints has none, and conditions that are unknown count as ready."""
    assert read_slice({"endpoints": None, "ports": None}, "grpc") == frozenset()
    assert read_slice({"endpoints": [{"addresses": ["10.0.0.1"]}], "ports": [{"port": 8001}]}, "8001") == {A}
    assert read_slice({"endpoints": [{"addresses": ["10.0.0.1"], "conditions": {}}], "ports": [{"port": 8001}]}, "grpc") == frozenset()


def test_outside_a_cluster_there_is_no_server() -> None:
    """The reason is told."""
    with pytest.raises(DiscoveryFailed, match="no pod of a Kubernetes cluster"):
        find_api_server({})


async def test_a_pod_without_a_token_asks_nobody(kubernetes: FakeKubernetes, caplog: pytest.LogCaptureFixture) -> None:
    """The log names the file."""
    (kubernetes.account / "token").unlink()
    async with following(make_source(kubernetes)):
        await until(lambda: "token: FileNotFoundError" in caplog.text)
    assert kubernetes.lists == 0

"""Fixtures of all tests."""

from __future__ import annotations

import gc
import logging
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from redis.asyncio import Redis
from xdist.scheduler import LoadScopeScheduling

from tests.models import build_chatml_model
from tests.unit.router.quota.redis_server import RedisServer, run_redis


def pytest_configure(config: pytest.Config) -> None:
    """Where the slow tests are left out, properties are tried on a quarter of the examples. Garbage is collected as in a router's process,
    that is, seldom and not among what was imported."""
    settings.register_profile("quick", max_examples=25)
    if "not slow" in config.option.markexpr:
        settings.load_profile("quick")
    gc.set_threshold(20_000)


def pytest_collection_finish() -> None:
    """What was imported stays."""
    gc.collect()
    gc.freeze()


class ByFile(LoadScopeScheduling):
    """With `-n`, the tests of a file share a process, and so do all of tests/e2e, whose Triton is started once."""

    def _split_scope(self, nodeid: str) -> str:
        return "tests/e2e" if nodeid.startswith("tests/e2e/") else nodeid.split("::", 1)[0]


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> ByFile:
    """The largest group begins first, which is the end-to-end tests."""
    return ByFile(config, log)


@pytest.fixture(autouse=True)
def command_log() -> Iterator[None]:
    """A command that ran in this process leaves its log behind, which writes to the stderr of that test, closed since."""
    yield
    for handler in [it for it in logging.root.handlers if type(it) is logging.StreamHandler]:
        logging.root.removeHandler(handler)


@pytest.fixture(scope="session")
def chatml(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small ChatML model folder with one token per byte."""
    return build_chatml_model(tmp_path_factory.mktemp("chatml"))


@pytest.fixture
def server() -> Iterator[RedisServer]:
    """A Redis of this test's own."""
    with run_redis() as running:
        yield running


@pytest.fixture
async def admin(server: RedisServer) -> AsyncIterator[Redis]:
    """A client that looks into it."""
    async with Redis.from_url(server.url, decode_responses=True) as client:
        yield client

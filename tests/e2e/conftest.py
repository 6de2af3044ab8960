"""The real system for end-to-end tests: Triton's binary, the language model, a router in a process of its own."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio

from server.assets.catalogue import DEFAULT_MODEL
from server.assets.store import resolve
from server.engine.openvino import OpenVinoEngine
from server.options import EngineOptions
from server.stack import Stack, StackOptions, run_stack
from tests.e2e.pipeline import Pipeline


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Everything here shares one event loop: Triton is killed when the thread that started it ends."""
    for item in items:
        if "/e2e/" in str(item.path) and isinstance(item, pytest.Function) and inspect.iscoroutinefunction(item.obj):
            item.add_marker(pytest.mark.asyncio(loop_scope="session"), append=False)


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def stack() -> AsyncIterator[Stack]:
    """A stack whose engine answers a batch exactly as each request alone; shared, so tests must leave it as it was."""
    async with run_stack(StackOptions(profile="deterministic")) as running:
        yield running


@pytest.fixture(scope="session")
def folder() -> Path:
    """The prepared default model."""
    return resolve(DEFAULT_MODEL)


@pytest.fixture(scope="session")
def engine(folder: Path) -> Iterator[OpenVinoEngine]:
    """The stack's engine without the stack, in this process; each test leaves it idle."""
    made = OpenVinoEngine(EngineOptions(folder, "bare", profile="deterministic"))
    yield made
    made.close()


@pytest.fixture(scope="session")
def pipeline(engine: OpenVinoEngine) -> Pipeline:
    """One for all tests, so that what one breaks, another notices."""
    return Pipeline(engine)

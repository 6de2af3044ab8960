"""Starting and supervising a server, with a small script in Triton's place."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from server import die_with_parent
from server.assets.folder import LAYOUT
from server.installation import PACKAGE_ROOT, LaunchError
from server.launch import Triton, TritonFailed, main
from server.ports import reserve_ports
from server.triton_log import LogTail, log_line
from server.triton_options import Endpoints, TritonOptions, build_arguments

PRELUDE = f"""\
#!{sys.executable}
import os, signal, subprocess, sys, time
from http.server import BaseHTTPRequestHandler, HTTPServer

given = dict(argument[2:].split("=", 1) for argument in sys.argv[1:] if "=" in argument)
segment = "/dev/shm/" + given["backend-config"].partition("=")[2] + "0"

class Health(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200 if self.path == "/v2/health/ready" else 404)
        self.end_headers()

def serve():
    HTTPServer((given["http-address"], int(given["http-port"])), Health).serve_forever()

def exit_orderly(*_):
    print("unloading", flush=True)
    os._exit(0)
"""
ORDERLY = "signal.signal(signal.SIGTERM, exit_orderly)\nserve()\n"
# As Triton after its exit timeout, with a stub and shared memory of its own.
HANGING = """\
signal.signal(signal.SIGTERM, signal.SIG_IGN)
open(segment, "w").close()
stub = subprocess.Popen(["sleep", "60"])
print("stub", stub.pid, segment, flush=True)
serve()
"""

MakeServer = Callable[[str], Path]


@pytest.fixture
def make_server(tmp_path: Path) -> MakeServer:
    def make(body: str) -> Path:
        script = tmp_path / "tritonserver"
        script.write_text(PRELUDE + body)
        script.chmod(0o755)
        return script

    return make


async def is_gone(pid: int) -> bool:
    # The kernel takes a moment to end what was killed.
    for _ in range(100):
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            return True
        if state == "Z":
            return True
        await asyncio.sleep(0.02)
    return False


async def test_ready_server_listens_where_it_was_told(make_server: MakeServer, tmp_path: Path) -> None:
    """`start` returns once the health endpoint says ready, with three different ports."""
    async with await Triton.start(TritonOptions(tmp_path, make_server(ORDERLY))) as triton:
        addresses = {triton.endpoints.grpc, triton.endpoints.http, triton.endpoints.metrics}
        assert len(addresses) == 3


async def test_stop_is_orderly_and_may_be_repeated(make_server: MakeServer, tmp_path: Path) -> None:
    """A server that obeys SIGTERM gives its own exit code, to every caller of stop and wait, also to those who ask as it exits."""
    triton = await Triton.start(TritonOptions(tmp_path, make_server(ORDERLY)))
    assert set(await asyncio.gather(*(triton.stop() for _ in range(20)), triton.wait())) == {0}
    assert await triton.stop() == 0


async def test_hanging_server_is_killed_with_all_it_started(make_server: MakeServer, tmp_path: Path) -> None:
    """A server that ignores SIGTERM is killed, its stub too, and its shared memory is removed."""
    lines: list[str] = []
    options = TritonOptions(tmp_path, make_server(HANGING), stop_timeout_s=0.1)
    triton = await Triton.start(options, on_log=lines.append)
    assert await triton.stop() == -signal.SIGKILL
    _, stub, segment = lines[0].split()
    assert await is_gone(triton.pid)
    assert await is_gone(int(stub))
    assert not Path(segment).exists()


async def test_impatient_stop_kills_at_once(make_server: MakeServer, tmp_path: Path) -> None:
    """Cancelling stop, as a second Ctrl-C does, kills the server and leaves nothing either."""
    lines: list[str] = []
    triton = await Triton.start(TritonOptions(tmp_path, make_server(HANGING)), on_log=lines.append)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(triton.stop(), 0.1)
    assert await triton.wait() == -signal.SIGKILL
    assert not Path(lines[0].split()[2]).exists()


async def test_crash_is_reported_and_cleaned_up(make_server: MakeServer, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A server that dies is not started again: wait ends with its signal, the log says so, its stub goes too."""
    lines: list[str] = []
    triton = await Triton.start(TritonOptions(tmp_path, make_server(HANGING)), on_log=lines.append)
    os.kill(triton.pid, signal.SIGABRT)
    assert await triton.wait() == -signal.SIGABRT
    assert f"Triton exited with code -6: pid {triton.pid}" in caplog.messages
    assert await is_gone(int(lines[0].split()[1]))


async def test_exit_before_ready_quotes_the_log(make_server: MakeServer, tmp_path: Path) -> None:
    """A server that gives up gives its exit code and the reason, though a long table follows it in the log."""
    body = """\
print("E1129 22:32:53.393849 1 model_lifecycle.cc:642] failed to load 'tiny': no weights")
print("+----+\\n| id |\\n" * 40)
print("I1129 22:32:53.393849 1 server.cc:305] waiting\\n" * 40)
print("error: creating server", end="", flush=True)
sys.exit(3)
"""
    with pytest.raises(TritonFailed, match="failed to load 'tiny': no weights") as failure:
        await Triton.start(TritonOptions(tmp_path, make_server(body)))
    assert (failure.value.reason, failure.value.exit_code) == ("TRITON_EXITED", 3)
    assert failure.value.log[-1] == "error: creating server"
    assert len(failure.value.log) <= 20


async def test_server_that_does_not_get_ready_is_stopped(make_server: MakeServer, tmp_path: Path) -> None:
    """A server that loads for longer than it may is ended, and what it last said is quoted."""
    body = "print('loading', os.getpid(), flush=True)\ntime.sleep(60)\n"
    with pytest.raises(TritonFailed, match=r"not ready after 0\.5 s") as failure:
        await Triton.start(TritonOptions(tmp_path, make_server(body), ready_timeout_s=0.5))
    assert failure.value.reason == "TRITON_NOT_READY"
    word, pid = failure.value.log[-1].split()
    assert word == "loading"
    assert await is_gone(int(pid))


async def test_cancelled_start_leaves_no_server(make_server: MakeServer, tmp_path: Path) -> None:
    """Cancelling `start` while models load ends the server."""
    started: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    body = "print(os.getpid(), flush=True)\ntime.sleep(60)\n"
    start = asyncio.create_task(Triton.start(TritonOptions(tmp_path, make_server(body)), on_log=started.set_result))
    pid = int(await started)
    start.cancel()
    with pytest.raises(asyncio.CancelledError):
        await start
    assert await is_gone(pid)


async def test_environment_and_folder_reach_the_server(make_server: MakeServer, tmp_path: Path) -> None:
    """The server runs where our packages are, with the variables that were asked for."""
    lines: list[str] = []
    body = "print(os.getcwd(), os.environ['PYTHONPATH'].split(os.pathsep)[0], os.environ['ASKED'])\n"
    with pytest.raises(TritonFailed):
        await Triton.start(TritonOptions(tmp_path, make_server(body), env={"ASKED": "yes"}), on_log=lines.append)
    assert lines == [f"{PACKAGE_ROOT} {PACKAGE_ROOT} yes"]


async def test_port_in_use_is_refused(make_server: MakeServer, tmp_path: Path) -> None:
    """A port that somebody listens on is named before anything is started."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(LaunchError, match=f"127.0.0.1:{port} cannot be used") as failure:
            await Triton.start(TritonOptions(tmp_path, make_server(ORDERLY), http_port=port))
    assert failure.value.reason == "PORT_IN_USE"


def test_a_port_that_no_machine_has_is_refused() -> None:
    """In the same way: no traceback, and no other port instead."""
    with pytest.raises(LaunchError, match="99999 cannot be used"), reserve_ports("127.0.0.1", (99999,)):
        pass


def test_reserved_ports_are_for_the_server_only() -> None:
    """A reserved port can be taken over by a socket that may share it, and is refused to any other."""
    with reserve_ports("127.0.0.1", (0, 0)) as (first, second):
        assert first != second
        with pytest.raises(OSError, match="in use"), socket.socket() as stranger:
            stranger.bind(("127.0.0.1", first))
        socket.create_server(("127.0.0.1", first)).close()


def test_arguments_bind_every_port_to_the_host(tmp_path: Path) -> None:
    """Each of the three protocols gets the host as well as its port; there is no tracing unless asked for."""
    arguments = build_arguments(TritonOptions(tmp_path), Endpoints("127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3"), "x-")
    for number, protocol in enumerate(("grpc", "http", "metrics"), 1):
        assert {f"--{protocol}-address=127.0.0.1", f"--{protocol}-port={number}"} <= set(arguments)
    assert not [argument for argument in arguments if argument.startswith("--trace")]


def test_tracing_follows_the_callers_context(tmp_path: Path) -> None:
    """With an endpoint, Triton exports the requests that carry a context and no others."""
    options = TritonOptions(tmp_path, trace_url="http://127.0.0.1:4318/v1/traces")
    arguments = build_arguments(options, Endpoints("a:1", "a:2", "a:3"), "x-")
    assert "--trace-config=opentelemetry,url=http://127.0.0.1:4318/v1/traces" in arguments
    assert "--trace-config=rate=0" in arguments


def test_errors_outlive_chatter_in_the_tail() -> None:
    """An error stays in the tail however many lines follow; in all there are 20 at most, in order."""
    tail = LogTail()
    for line in ["E1129 first", "|table|", "", *(f"I1129 {number}" for number in range(100))]:
        tail.add(line)
    assert tail.lines() == ["E1129 first", *(f"I1129 {number}" for number in range(85, 100))]


@pytest.mark.parametrize(
    ("line", "level"),
    [("E1129 broken", logging.ERROR), ("W1129 odd", logging.WARNING), ("I1129 fine", logging.INFO), ("Error: NVML", logging.INFO)],
)
def test_lines_keep_their_level(line: str, level: int, caplog: pytest.LogCaptureFixture) -> None:
    """Triton's stamp decides the level; a line without one, such as a model's print, is information."""
    caplog.set_level(logging.INFO)
    log_line(line)
    assert caplog.record_tuples == [("triton", level, line)]


def test_orphan_does_not_start() -> None:
    """A launcher that was gone before its death could be watched gets no server."""
    command = [sys.executable, "-IS", die_with_parent.__file__, "1", "/bin/echo", "started"]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (run.returncode, run.stdout, run.stderr) == (1, "", "the launcher has gone\n")


@pytest.fixture
def serve_arguments(tmp_path: Path) -> list[str]:
    model = tmp_path / "model"
    model.mkdir()
    for name in LAYOUT:
        (model / name).touch()
    return ["--model", str(model), "--grpc-port=0", "--http-port=0", "--metrics-port=0", "--triton", str(tmp_path / "tritonserver")]


def test_serve_fills_the_repository(make_server: MakeServer, serve_arguments: list[str], tmp_path: Path) -> None:
    """The command renders our repository for its model and gives Triton's exit code."""
    make_server(f"import shutil; shutil.copytree(given['model-repository'], {str(tmp_path / 'seen')!r}); sys.exit(3)\n")
    assert main([*serve_arguments, "--profile=deterministic", "--set", "kv_blocks=64"]) == 3
    config = next((tmp_path / "seen").glob("*/config.pbtxt")).read_text()
    assert all(f'"{value}"' in config for value in (tmp_path / "model", "deterministic", "64"))


def test_serve_refuses_unknown_values(make_server: MakeServer, serve_arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """A misspelt value ends the command with a sentence."""
    make_server(ORDERLY)
    assert main([*serve_arguments, "--set", "kvblocks=64"]) == 1
    assert "UNKNOWN_VALUE: unknown value 'kvblocks'" in capsys.readouterr().err


def test_serve_ends_in_order_on_sigterm(make_server: MakeServer, serve_arguments: list[str]) -> None:
    """SIGTERM to the command stops Triton in order, and Triton's exit code is the command's."""
    make_server(ORDERLY)
    command = [sys.executable, "-c", "import sys; from server.launch import main; sys.exit(main(sys.argv[1:]))", *serve_arguments]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=PACKAGE_ROOT) as launcher:
        assert launcher.stderr is not None
        assert any("Triton is ready" in line for line in launcher.stderr)
        launcher.send_signal(signal.SIGTERM)
        assert "unloading" in launcher.stderr.read()
    assert launcher.returncode == 0

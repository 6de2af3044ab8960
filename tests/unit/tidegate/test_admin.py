"""`tidegate admin` against an AdminService in this process: every command, what it prints, and how it fails."""

from __future__ import annotations

import asyncio
import json
import shlex
from argparse import ArgumentParser
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from google.protobuf.timestamp_pb2 import Timestamp
from tidegate.admin.command import COMMANDS, build_parser, build_workers_parser, run
from tidegate.admin.output import to_table
from tidegate.admin.router import Fault, Router, connect, read_access
from tidegate.v1 import admin_service_pb2 as api

from router.admission.estimate import TimeModel
from router.admission.queue import AdmissionQueue
from router.auth.keys import read_prefix
from router.store.usage import UsageStore
from tests.bench.admin import AdminBench, run_admin
from tests.bench.postgres import fresh_database
from tests.unit.router.fake_worker import FakeWorker, fleet_of
from tests.unit.router.ledger.entries import entry_of

WORKER = "10.0.0.9:8001"
DAYS = "--from 2027-01-01 --to 2027-01-31"

# Each command once, in an order in which all succeed; `{key}` is the prefix of a key.
EXAMPLES = {
    "tenant put": "tenant put globex --name 'Globex Inc' --weight 0.5 --no-downgrade",
    "tenant list": "tenant list",
    "tenant disable": "tenant disable globex",
    "tenant enable": "tenant enable globex",
    "user put": "user put acme bob --name Bob",
    "user list": "user list acme",
    "key create": "key create acme bob --name ci --role caller --role tenant-admin --model small --expires 90d",
    "key list": "key list acme",
    "key rotate": "key rotate acme tg_{key} --overlap 2h",
    "key restrict": "key restrict acme {key} --model a --model b",
    "key revoke": "key revoke acme {key}",
    "quota set": "quota set acme --key-prefix {key} --model small --requests-per-minute 0 --money-per-month 0.50",
    "quota list": "quota list",
    "quota delete": "quota delete acme --key-prefix {key} --model small",
    "price add": "price add small --prompt 1.5 --cached 0.15 --completion 3 --from 2999-12-31",
    "price list": "price list",
    "usage days": f"usage days acme {DAYS} --user ann",
    "usage export": f"usage export {DAYS} --by day --format json",
    "audit": "audit acme --limit 5",
    "queues": "queues",
    "worker drain": f"worker drain {WORKER}",
    "worker resume": f"worker resume {WORKER}",
}


class Terminal:
    """Runs commands as the operator, and keeps what the last one printed."""

    def __init__(self, bench: AdminBench, captured: pytest.CaptureFixture[str]) -> None:
        self.bench = bench
        self.out = ""
        self.err = ""
        self._captured = captured

    async def run(self, line: str, key: str = "ops", parser: ArgumentParser | None = None) -> int:
        arguments = (parser or build_parser()).parse_args(["--target", self.bench.target, *shlex.split(line)])
        code = await run(arguments, {"TIDEGATE_KEY": key})
        self.out, self.err = self._captured.readouterr()
        return code

    async def make_key(self) -> str:
        """The prefix of a new key of acme's ann."""
        for line in ("tenant put acme", "user put acme ann", "key create acme ann --json"):
            assert await self.run(line) == 0
        return str(json.loads(self.out)["prefix"])


@pytest.fixture
async def terminal(capsys: pytest.CaptureFixture[str]) -> AsyncIterator[Terminal]:
    queues = {"small": AdmissionQueue(lambda: 4, lambda: 0.0, TimeModel())}
    fleets = {"small": fleet_of(FakeWorker(WORKER, busy=2), FakeWorker("10.0.0.8:8001", up=False))}
    async with fresh_database() as (database, _), run_admin(database, queues, fleets, watch_s=0.01) as bench:
        yield Terminal(bench, capsys)


def test_every_command_has_an_example() -> None:
    """A new one must have one too, and is then held to what follows."""
    assert {command.name for command in COMMANDS} == set(EXAMPLES)


@pytest.mark.parametrize("option", ["", " --json"])
async def test_every_command_does_what_it_says(terminal: Terminal, option: str) -> None:
    """It prints something, and JSON where that is asked for."""
    key = await terminal.make_key()
    await UsageStore(terminal.bench.database).add([entry_of("a").to_line()])
    for name, line in EXAMPLES.items():
        assert (name, await terminal.run(line.format(key=key) + option), terminal.out != "") == (name, 0, True)
        if option:
            json.loads(terminal.out)


async def test_options_of_all_commands_stand_anywhere(terminal: Terminal) -> None:
    """As people type them."""
    for line in ("--json tenant list", "tenant --json list", "tenant list --json"):
        assert (await terminal.run(line), terminal.out) == (0, "[]\n")


async def test_a_new_key_is_all_that_standard_output_gets(terminal: Terminal) -> None:
    """So that it can go to a file or a pipe; what people should know of it goes to the screen."""
    old = await terminal.make_key()
    for line in ("key create acme ann", f"key rotate acme {old}"):
        assert await terminal.run(line) == 0
        prefix = read_prefix(terminal.out.removesuffix("\n"))
        assert prefix
        assert terminal.err == f"This is shown once. The key is named {prefix} from now on.\n"
    await terminal.run("key list acme --json")
    assert [key["expires_at"] is not None for key in json.loads(terminal.out)] == [True, False, False]


async def test_keys_that_wait_for_a_new_pepper_are_listed(terminal: Terminal) -> None:
    """Those of all tenants, or of one; a table of no line is that none waits."""
    prefix = await terminal.make_key()
    for told, listed in (("current", []), ("old", [prefix])):
        if told == "old":
            await terminal.bench.database.execute("UPDATE keys SET pepper = 'before'")
        for tenant in ("", " acme"):
            assert await terminal.run(f"key list{tenant}") == 0
            assert [line.split()[0] for line in terminal.out.splitlines()] == ["PREFIX", prefix]
            assert f"  {told}  " in terminal.out
            await terminal.run(f"key list{tenant} --old-pepper --json")
            assert [key["prefix"] for key in json.loads(terminal.out)] == listed


FAILURES = [
    ("tenant disable none", 1, "TENANT_UNKNOWN: no such tenant"),
    ("quota set acme", 1, "FIELD_INVALID: quota.limits: must hold a limit; a quota without any is deleted"),
    ("price add m --prompt -1 --cached x --completion 1", 1, "FIELD_INVALID: price.prompt: must be a decimal"),
    ("usage days --to 2027-01-01 --from 2027-01-02", 1, "FIELD_INVALID: filter.last_day: must not be before the first day"),
    ("key restrict acme k", 2, "give --model, --no-models or --all-models"),
    ("key restrict acme k --model m --all-models", 2, "--model, --no-models and --all-models exclude each other"),
    ("tenant list --target 127.0.0.1:1", 3, "UNREACHABLE: "),
    ("tenant list --target router.example:8500", 2, "the key would go to router.example:8500 unencrypted"),
    ("tenant list --key-file /nowhere", 2, "--key-file: /nowhere: No such file or directory"),
    ("tenant list --tls-ca /nowhere", 2, "/nowhere: No such file or directory"),
    ("usage export --output /nowhere/f", 2, "--output: /nowhere/f.part: No such file or directory"),
]


async def test_a_failure_is_one_line_and_a_code(terminal: Terminal) -> None:
    """Refused, wrongly asked, or away: a program can tell them apart, and a person knows what to do."""
    for line, code, text in FAILURES:
        assert (line, await terminal.run(line), terminal.out) == (line, code, "")
        assert terminal.err.startswith(f"tidegate admin: {text}")
        assert terminal.err.count("\n") == 1


async def test_a_caller_without_the_right_is_told(terminal: Terminal) -> None:
    """One without a key is not sent to the router at all."""
    assert (await terminal.run("tenant list", key="ann"), terminal.err) == (
        1,
        "tidegate admin: PERMISSION_DENIED: the role operator is needed\n",
    )
    assert await terminal.run("tenant list", key="") == 2
    assert terminal.err.startswith("tidegate admin: no key: ")


@pytest.mark.parametrize(
    "line",
    [
        "tenant list --key tg_abcdefghijkl_secret",
        "key revoke acme tg_abcdefghijkl_secret",
        "key rotate acme k --overlap 1",
        "key create acme ann --expires soon",
        "key create acme ann --expires 999999w",
        "key create acme ann --role root",
        "quota set acme --tokens-per-day -1",
        "usage days --from today",
        "audit --limit x",
        "tenant",
        "",
    ],
)
def test_wrong_arguments_end_with_two(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Before anything is sent. A key in the arguments is among them: others on the machine can see those."""
    with pytest.raises(SystemExit) as caught:
        build_parser().parse_args(shlex.split(line))
    assert caught.value.code == 2
    assert "usage: tidegate admin" in capsys.readouterr().err


def test_a_key_comes_from_a_file_before_the_environment(tmp_path: Path) -> None:
    """With or without the newline that editors add; what could not be sent as a header is no key."""
    file = tmp_path / "key"
    asked = build_parser().parse_args(["--key-file", str(file), "tenant", "list"])
    file.write_text("tg_a_b\n")
    assert read_access(asked, {"TIDEGATE_KEY": "other"}).credentials.token == "tg_a_b"
    assert "tg_a_b" not in repr(read_access(asked, {}))
    for text in (b"", b"two words", b"\xff\xfe", "schlüssel".encode()):
        file.write_bytes(text)
        with pytest.raises(Fault, match="not a key"):
            read_access(asked, {})


async def test_an_exported_file_is_complete_or_not_there(terminal: Terminal, tmp_path: Path) -> None:
    """And then the old one stays as it was."""
    file = tmp_path / "usage.csv"
    await UsageStore(terminal.bench.database).add([entry_of("a", user="Ännchen").to_line()])
    assert await terminal.run(f"usage export {DAYS} --output {file}") == 0
    assert [line.split(",")[:3] for line in file.read_text().splitlines()[1:]] == [["a", "acme", "Ännchen"]]
    before = file.read_bytes()
    assert await terminal.run(f"usage export {DAYS} --output {file}", key="ann") == 1
    assert (file.read_bytes(), list(tmp_path.iterdir())) == (before, [file])


async def test_a_watch_shows_the_queues_again_and_again(terminal: Terminal, capsys: pytest.CaptureFixture[str]) -> None:
    """A table each time, or a line of JSON, until it is interrupted."""
    watch = asyncio.create_task(terminal.run("queues --watch --json"))
    out = ""
    while out.count("\n") < 3:
        await asyncio.sleep(0.01)
        out += capsys.readouterr().out
    watch.cancel()
    await asyncio.wait({watch})
    assert watch.cancelled()
    assert json.loads(out.splitlines()[2]) == [{"model": "small", "waiting": 0, "running": 0, "slots": 4, "tenants": []}]


async def test_a_tenants_downgrades_are_forbidden_and_allowed_again(terminal: Terminal) -> None:
    """They are allowed at first, and stay as they are where nothing is said of them."""
    for options, told in (("", "allowed"), ("--no-downgrade", "forbidden"), ("--weight 2", "forbidden"), ("--downgrade", "allowed")):
        assert await terminal.run(f"tenant put acme {options}") == 0
        assert terminal.out.endswith(f"downgrades {told}\n")
        await terminal.run("tenant list")
        assert told in terminal.out


async def test_workers_are_a_command_of_their_own(terminal: Terminal) -> None:
    """A line for each, in which what a worker that is down does not tell is a dash; JSON where that is asked for."""
    assert await terminal.run("", parser=build_workers_parser()) == 0
    head, *lines = (line.split() for line in terminal.out.replace("SILENT S", "SILENT").replace("KV BLOCKS", "KV").splitlines())
    assert head[:11] == ["MODEL", "WORKER", "PHASE", "STATE", "SILENT", "ENGINE", "TURNS", "QUEUED", "SLOTS", "OURS", "KV"]
    assert [line[:6] for line in lines] == [
        ["small", "10.0.0.8:8001", "serving", "down", "-", "scripted/fast"],
        ["small", WORKER, "serving", "up", "0", "scripted/fast"],
    ]
    assert lines[1][6:10] == ["0", "0", "8", "2"]
    await terminal.run("--json", parser=build_workers_parser())
    assert [(it["address"], it["phase"]) for it in json.loads(terminal.out)] == [("10.0.0.8:8001", "serving"), (WORKER, "serving")]
    assert await terminal.run("", key="ann", parser=build_workers_parser()) == 1
    assert terminal.err == "tidegate workers: PERMISSION_DENIED: the role operator is needed\n"


async def test_a_listing_is_read_to_its_end(terminal: Terminal) -> None:
    """However many pages that is, or as far as was asked for."""
    await terminal.run("tenant put acme")
    await terminal.bench.database.execute("INSERT INTO users SELECT 'acme', 'u' || n, '' FROM generate_series(1, 2000) AS n")
    access = read_access(build_parser().parse_args(["--target", terminal.bench.target, "tenant", "list"]), {"TIDEGATE_KEY": "ops"})
    async with connect(access) as router:
        assert len(await list_users(router)) == 2000
        assert [len(await list_users(router, most)) for most in (0, 7, 1500, 9999)] == [0, 7, 1500, 2000]


async def list_users(router: Router, most: int | None = None) -> list[str]:
    return [user.user_id for user in await router.list("ListUsers", api.ListUsersRequest(tenant_id="acme"), "users", most)]


def test_a_table_is_aligned_and_does_nothing_to_a_terminal() -> None:
    """Numbers to the right, a dash for nothing, and no control characters, whatever a name holds."""
    rows = [("a\x1b[2J", 7, None, Timestamp(seconds=1)), ("", 1234, 1.5, None)]
    columns = [(title, lambda row, at=at: row[at]) for at, title in enumerate(("NAME", "N", "X", "AT"))]
    assert to_table(rows, columns).splitlines() == [
        "NAME      N    X  AT",
        "a?[2J     7    -  1970-01-01 00:00:01Z",
        "-      1234  1.5  -",
    ]
    assert to_table([], columns) == "NAME  N  X  AT"

"""`tidegate bench`: load tests.

tidegate bench run tidegate://127.0.0.1:8500 --rate 20 --duration 30 --out result.json --report result.html
tidegate bench run http://127.0.0.1:8000 --model llama --concurrency 8,32,128
tidegate bench run triton://127.0.0.1:8001 --trace mooncake.jsonl --speed 10 --scale 0.1
tidegate bench compare direct.json router.json
tidegate bench report direct.json router.json --out both.html --png pictures/
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import sys
from collections.abc import Sequence
from pathlib import Path

import uvloop
from rich.console import Console
from tidegate.parser import Parser

from loadtest.campaign import run_campaign
from loadtest.options import add_run_options, read_campaign
from loadtest.result import Result, ResultUnreadable
from loadtest.tables import compare_table, print_result


def main(argv: Sequence[str] | None = None) -> int:
    """Returns the process's exit code."""
    arguments = _parser().parse_args(argv)
    try:
        return int(arguments.command(arguments))
    except (ValueError, ResultUnreadable, OSError) as error:
        print(f"tidegate bench: {error}", file=sys.stderr)
        return 2


def _parser() -> argparse.ArgumentParser:
    parser = Parser(prog="tidegate bench", description="Load tests: drive a server, tell what came of it.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    run = commands.add_parser("run", help="drive a target and measure it")
    add_run_options(run)
    run.set_defaults(command=_run)
    compare = commands.add_parser("compare", help="results side by side, as ratios to the first")
    compare.add_argument("results", nargs="+", type=Path)
    compare.set_defaults(command=_compare)
    report = commands.add_parser("report", help="a self-contained HTML page with pictures")
    report.add_argument("results", nargs="+", type=Path)
    report.add_argument("--out", type=Path, required=True, help="the HTML file")
    report.add_argument("--png", type=Path, help="folder for the pictures as PNG")
    report.set_defaults(command=_report)
    return parser


def _run(arguments: argparse.Namespace) -> int:
    campaign, console = read_campaign(arguments), Console()
    gc.freeze()  # what is loaded by now lives to the end; not walking it keeps the collector's pauses short
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        result = runner.run(run_campaign(campaign, console))
    print_result(console, result)
    if arguments.out:
        result.save(arguments.out)
    if arguments.report:
        _write_report([result], arguments.report, arguments.png)
    return 0 if any(run.outcomes.get("completed") for run in result.runs) else 1


def _compare(arguments: argparse.Namespace) -> int:
    Console().print(compare_table([Result.load(path) for path in arguments.results]))
    return 0


def _report(arguments: argparse.Namespace) -> int:
    _write_report([Result.load(path) for path in arguments.results], arguments.out, arguments.png)
    return 0


def _write_report(results: Sequence[Result], page: Path, pictures: Path | None) -> None:
    from loadtest.report import write_report  # matplotlib takes a second to load

    write_report(results, page, pictures)


if __name__ == "__main__":
    sys.exit(main())

"""The command lines `tidegate admin` and `tidegate workers`, and one line for whatever goes wrong.

Exit codes: 0 done, 1 refused by the router, 2 wrong arguments, 3 the router or its database is away.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from grpc import StatusCode

from tidegate.admin import identity, reports, terms, workers
from tidegate.admin.arguments import Command
from tidegate.admin.output import describe_error
from tidegate.admin.router import Fault, connect, read_access
from tidegate.credentials import KEY_VARIABLE
from tidegate.errors import TidegateError
from tidegate.parser import Parser

COMMANDS = (*identity.COMMANDS, *terms.COMMANDS, *reports.COMMANDS, *workers.COMMANDS)

_AWAY = (StatusCode.UNAVAILABLE, StatusCode.DEADLINE_EXCEEDED)
_NOUNS = {
    "tenant": "customers",
    "user": "people and programs of a tenant",
    "key": "API keys",
    "quota": "limits of use",
    "price": "what tokens cost",
    "usage": "what was used",
    "worker": "workers, as `tidegate workers` shows them",
}


def main(argv: Sequence[str] | None = None) -> int:
    """`tidegate admin`; the process's exit code."""
    return _main(build_parser().parse_args(argv))


def main_workers(argv: Sequence[str] | None = None) -> int:
    """`tidegate workers`; the process's exit code."""
    return _main(build_workers_parser().parse_args(argv))


def _main(arguments: argparse.Namespace) -> int:
    try:
        return asyncio.run(run(arguments, os.environ))
    except BrokenPipeError:  # `| head` has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


async def run(arguments: argparse.Namespace, environment: Mapping[str, str]) -> int:
    """Does what the arguments say; the exit code."""
    try:
        async with connect(read_access(arguments, environment)) as router:
            await arguments.run(router, arguments)
        return 0
    except Fault as fault:
        print(f"{arguments.prog}: {fault}", file=sys.stderr)
        return 2
    except TidegateError as error:
        print(f"{arguments.prog}: {describe_error(error)}", file=sys.stderr)
        return 3 if error.code in _AWAY else 1


def build_parser() -> argparse.ArgumentParser:
    """Options that all commands have may stand anywhere."""
    parser = Parser(prog="tidegate admin", description="Administer a router.", epilog=_EPILOG, allow_abbrev=False)
    parser.set_defaults(prog=parser.prog)
    _add_options(parser)
    common = Parser(add_help=False, argument_default=argparse.SUPPRESS)
    _add_options(common)
    nouns = parser.add_subparsers(metavar="COMMAND", required=True)
    groups = {noun: nouns.add_parser(noun, help=_tell_verbs(noun), parents=[common], allow_abbrev=False) for noun in _NOUNS}
    verbs = {noun: group.add_subparsers(metavar="VERB", required=True) for noun, group in groups.items()}
    for command in COMMANDS:
        noun, _, verb = command.name.partition(" ")
        _add_command(verbs.get(noun, nouns), verb or noun, command, common)
    return parser


def _tell_verbs(noun: str) -> str:
    verbs = (command.name.partition(" ")[2] for command in COMMANDS if command.name.startswith(f"{noun} "))
    return f"{_NOUNS[noun]}: {', '.join(verbs)}"


def build_workers_parser() -> argparse.ArgumentParser:
    """The same options, for a command of its own."""
    form = argparse.RawDescriptionHelpFormatter
    text, legend = workers.SHOW.run.__doc__, workers.LEGEND
    parser = Parser("tidegate workers", description=text, epilog=legend, formatter_class=form, allow_abbrev=False)
    parser.set_defaults(prog=parser.prog)
    _add_options(parser)
    _add_arguments(parser, workers.SHOW)
    return parser


def _add_command(parsers: Any, name: str, command: Command, common: argparse.ArgumentParser) -> None:
    text = command.run.__doc__
    _add_arguments(parsers.add_parser(name, help=text, description=text, parents=[common], allow_abbrev=False), command)


def _add_arguments(parser: argparse.ArgumentParser, command: Command) -> None:
    for argument in command.arguments:
        parser.add_argument(*argument.names, **argument.options)
    parser.set_defaults(run=command.run)


def _add_options(parser: argparse.ArgumentParser) -> None:
    for names, default, options in _OPTIONS:
        kept = parser.argument_default or default
        parser.add_argument(*names, default=kept, **options)


_OPTIONS: tuple[tuple[tuple[str, ...], Any, dict[str, Any]], ...] = (
    (("--target",), "127.0.0.1:8500", {"metavar": "HOST:PORT", "help": "the router (default: 127.0.0.1:8500)"}),
    (("--key-file",), None, {"type": Path, "metavar": "FILE", "help": f"file that holds the key (default: the variable {KEY_VARIABLE})"}),
    (("--tls",), False, {"action": "store_true", "help": "encrypt, and trust the system's authorities"}),
    (("--tls-ca",), None, {"type": Path, "metavar": "FILE", "help": "encrypt, and trust this authority"}),
    (("--tls-cert",), None, {"type": Path, "metavar": "FILE", "help": "certificate to show, with --tls-key"}),
    (("--tls-key",), None, {"type": Path, "metavar": "FILE", "help": "private key of the certificate"}),
    (("--json",), False, {"action": "store_true", "help": "print JSON"}),
)
_EPILOG = f"The key is taken from {KEY_VARIABLE} or --key-file. Every change is in `audit` afterwards."

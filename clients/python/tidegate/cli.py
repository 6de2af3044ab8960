"""The `tidegate` command. Installed packages add subcommands through the entry point group `tidegate.commands`.

A subcommand that Ctrl-C interrupts ends with 130 here, with no traceback.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from importlib.metadata import EntryPoint, entry_points, version

from tidegate.parser import suggest

GROUP = "tidegate.commands"
OPTIONS = ("--help", "--version")
WORDS = {
    "admin": "tenants, keys, quotas, prices, usage, audit log of a router",
    "bench": "load tests",
    "chat": "talk with a model",
    "doctor": "look at all that a router stands on",
    "engine": "render a model repository for a GPU machine",
    "model": "fetch, list and verify models",
    "router": "run the router by a configuration file",
    "serve": "run Triton with a model",
    "up": "run model, Triton and router on this machine",
    "workers": "a router's workers, as it sees them",
}
"""What our own subcommands do: their modules are loaded only to be run, since some take seconds."""


def main() -> int:
    """Runs the subcommand that the first argument names."""
    commands = {point.name: point for point in entry_points(group=GROUP)}
    name = sys.argv[1] if len(sys.argv) > 1 else ""
    if name not in commands:
        return _show_usage(name, commands)
    try:
        command = commands[name].load()
        return int(command(sys.argv[2:]) or 0)
    except KeyboardInterrupt:
        return 130


def _show_usage(name: str, commands: dict[str, EntryPoint]) -> int:
    if name == "--version":
        print(f"tidegate {version('tidegate')}")
        return 0
    if name in ("-h", "--help"):
        print(usage(commands))
        return 0
    fault = f"\n\ntidegate: there is no command {name!r}{suggest([name], [*commands, *OPTIONS])}" if name else ""
    print(f"{usage(commands)}{fault}", file=sys.stderr)
    return 2


def usage(commands: Iterable[str]) -> str:
    """The list of subcommands."""
    names = "\n".join(f"  {name:<9}{WORDS.get(name, '')}".rstrip() for name in sorted(commands))
    return f"usage: tidegate COMMAND [--help]\n       tidegate --version\n\n{names}"

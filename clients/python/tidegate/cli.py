"""The `tidegate` command. Installed packages add subcommands through the entry point group `tidegate.commands`."""

from __future__ import annotations

import sys
from importlib.metadata import EntryPoint, entry_points

GROUP = "tidegate.commands"


def main() -> int:
    """Runs the subcommand that the first argument names."""
    commands = {point.name: point for point in entry_points(group=GROUP)}
    name = sys.argv[1] if len(sys.argv) > 1 else ""
    if name not in commands:
        print(usage(commands), file=sys.stdout if name in ("-h", "--help") else sys.stderr)
        return 0 if name in ("-h", "--help") else 2
    command = commands[name].load()
    return int(command(sys.argv[2:]) or 0)


def usage(commands: dict[str, EntryPoint]) -> str:
    """The list of subcommands."""
    names = "\n".join(f"  tidegate {name}" for name in sorted(commands))
    return f"usage: tidegate COMMAND [--help]\n\n{names}"

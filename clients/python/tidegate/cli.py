"""The `tidegate` command. Installed packages add subcommands through the entry point group `tidegate.commands`.

A subcommand that Ctrl-C interrupts ends with 130 here, with no traceback.
"""

from __future__ import annotations

import sys
from importlib.metadata import EntryPoint, entry_points

GROUP = "tidegate.commands"


def main() -> int:
    """Runs the subcommand that the first argument names."""
    commands = {point.name: point for point in entry_points(group=GROUP)}
    name = sys.argv[1] if len(sys.argv) > 1 else ""
    if name not in commands:
        return _show_usage(name, usage(commands))
    try:
        command = commands[name].load()
        return int(command(sys.argv[2:]) or 0)
    except KeyboardInterrupt:
        return 130


def _show_usage(name: str, text: str) -> int:
    if name in ("-h", "--help"):
        print(text)
        return 0
    fault = f"\n\ntidegate: there is no command {name!r}" if name else ""
    print(f"{text}{fault}", file=sys.stderr)
    return 2


def usage(commands: dict[str, EntryPoint]) -> str:
    """The list of subcommands."""
    names = "\n".join(f"  tidegate {name}" for name in sorted(commands))
    return f"usage: tidegate COMMAND [--help]\n\n{names}"

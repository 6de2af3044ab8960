"""`tidegate router CONFIG`: runs a router until SIGTERM or SIGINT, then drains it."""

from __future__ import annotations

import asyncio
import gc
import logging
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

import uvloop
from tidegate.parser import Parser

from router import logs
from router.app import build
from router.config import Config, ConfigInvalid, load_config
from router.errors import StartFailed
from router.first_key import make_operator_key


def main(argv: Sequence[str] | None = None) -> int:
    """Returns the process's exit code: 2 for a bad configuration."""
    parser = Parser(prog="tidegate router", description="Run the router.")
    parser.add_argument("config", type=Path, help="TOML file; see router/config.py")
    parser.add_argument("--print-config", action="store_true", help="print the configuration in force, then exit")
    parser.add_argument("--new-operator-key", metavar="NAME", help="print a new key that may do everything, then exit")
    parser.add_argument("--log-format", choices=logs.FORMATS, default="text", help="of the lines on stderr (default %(default)s)")
    arguments = parser.parse_args(argv)
    logs.set_up(arguments.log_format)
    try:
        config = load_config(arguments.config)
        if arguments.print_config:
            print(config.model_dump_json(indent=2))
        elif arguments.new_operator_key is not None:
            print(uvloop.run(make_operator_key(config, arguments.new_operator_key)))
        else:
            uvloop.run(serve(config))
    except (ConfigInvalid, StartFailed) as error:
        print(f"tidegate router: {error}", file=sys.stderr)
        return 2
    return 0


async def serve(config: Config) -> None:
    """Runs until a signal asks to stop."""
    stopping = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    async with build(config).running() as endpoints:
        places = {"router ready": endpoints.grpc, "metrics": endpoints.metrics, "http": endpoints.http}
        print(", ".join(f"{name} on {address}" for name, address in places.items() if address), flush=True)
        _settle_collector()
        await stopping.wait()
        logging.getLogger("tidegate").info("draining")


def _settle_collector() -> None:
    """What was made up to now stays, so no collection need look at it again; and turns leave few cycles behind, so look for them less
    often than every 700 objects. Both together were 6 % of the CPU of a busy router."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000)


if __name__ == "__main__":
    sys.exit(main())

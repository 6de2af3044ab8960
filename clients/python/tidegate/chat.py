"""`tidegate chat`: a conversation in the terminal. Ctrl-C cancels the running turn; at the prompt it, or Ctrl-D, leaves."""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress

from tidegate.client import Client
from tidegate.credentials import PlaintextRefused
from tidegate.errors import TidegateError
from tidegate.messages import assistant, system, user
from tidegate.session import Session
from tidegate.v1.event_pb2 import FinishReason
from tidegate.v1.turn_pb2 import Message, Sampling


def main(argv: Sequence[str] | None = None) -> int:
    """Returns the process's exit code."""
    parser = argparse.ArgumentParser(prog="tidegate chat", description="Chat with a model.")
    parser.add_argument("--target", default="127.0.0.1:8500", help="router, host:port (default %(default)s)")
    parser.add_argument("--tls", action="store_true", help="encrypt; needed for a key ($TIDEGATE_KEY) to another machine")
    parser.add_argument("--model", default="", help="model name; the router's default when left out")
    parser.add_argument("--system", default="", help="instructions to the model")
    parser.add_argument("--temperature", type=float, default=None, help="0 is greedy, the default")
    parser.add_argument("--max-tokens", type=int, default=None, help="most tokens of an answer")
    arguments = parser.parse_args(argv)
    try:
        return asyncio.run(_chat(arguments))
    except PlaintextRefused:
        print(f"tidegate chat: the key would go to {arguments.target} unencrypted; give --tls", file=sys.stderr)
        return 1
    except (TidegateError, ValueError) as error:  # ValueError: of a key that is none
        print(f"tidegate chat: {error}", file=sys.stderr)
        return 1


async def _chat(arguments: argparse.Namespace) -> int:
    history = [system(arguments.system)] if arguments.system else []
    sampling = None if arguments.temperature is None else Sampling(temperature=arguments.temperature)
    async with Client(arguments.target, tls=arguments.tls) as client, client.session(model=arguments.model, sampling=sampling) as session:
        while (question := await _ask()) is not None:
            if question:
                await _answer(session, history, question, arguments.max_tokens)
    return 0


async def _ask() -> str | None:
    """The next line of the person; None at the end, which Ctrl-C is too."""
    loop = asyncio.get_running_loop()
    line: asyncio.Future[str | None] = loop.create_future()
    loop.add_signal_handler(signal.SIGINT, _settle, line, None)
    # A thread that nobody waits for: what reads a terminal cannot be interrupted.
    threading.Thread(target=_read_line, args=(loop, line), daemon=True).start()
    try:
        return await line
    finally:
        loop.remove_signal_handler(signal.SIGINT)


def _read_line(loop: asyncio.AbstractEventLoop, line: asyncio.Future[str | None]) -> None:
    try:
        text = input("\n> ").strip()
    except (EOFError, OSError, ValueError):  # Ctrl-D, a terminal that has gone, what is no text
        text = None
    with suppress(RuntimeError):  # the program has ended
        loop.call_soon_threadsafe(_settle, line, text)


def _settle(line: asyncio.Future[str | None], text: str | None) -> None:
    if not line.done():
        line.set_result(text)


async def _answer(session: Session, history: list[Message], question: str, max_tokens: int | None) -> None:
    turn = await session.start(*history, user(question), max_output_tokens=max_tokens)
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGINT, lambda: asyncio.ensure_future(turn.cancel()))
    text = ""
    try:
        async for event in turn:
            text += event.text_delta.text
            print(event.text_delta.text, end="", flush=True)
    except TidegateError as error:
        print(f"\n[{error}]", file=sys.stderr)
        return
    finally:
        loop.remove_signal_handler(signal.SIGINT)
    if turn.degraded is not None:
        print(f" [{turn.degraded.to_model} answered: {turn.degraded.reason}]", end="")
    if turn.finish_reason == FinishReason.FINISH_REASON_CANCELLED:
        print(" [cancelled]", end="")
    print()
    history += [user(question), assistant(text)]

"""`tidegate chat`: a conversation in the terminal. Ctrl-C cancels the running turn; at the prompt it, or Ctrl-D, leaves.

Where input is no terminal each of its lines is a message; where output is none it holds the answers and nothing else.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress

from tidegate.chat_screen import Screen
from tidegate.client import Client
from tidegate.credentials import PlaintextRefused
from tidegate.errors import TidegateError
from tidegate.messages import assistant, system, user
from tidegate.parser import Parser
from tidegate.session import Session
from tidegate.v1.turn_pb2 import Message, Sampling

COMMANDS = """\
/help   this list
/new    forget what was said
/quit   leave, as Ctrl-D does
Ctrl-C  cancel the answer that is being written"""


def main(argv: Sequence[str] | None = None) -> int:
    """Returns the process's exit code."""
    parser = Parser(prog="tidegate chat", description="Chat with a model.", epilog="The code is 1 when a message was not answered.")
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
    sampling = None if arguments.temperature is None else Sampling(temperature=arguments.temperature)
    async with Client(arguments.target, tls=arguments.tls) as client, client.session(model=arguments.model, sampling=sampling) as session:
        conversation = Conversation(session, arguments.system, arguments.max_tokens)
        conversation.screen.greet(arguments.target, arguments.model)
        while (line := await _read(conversation.screen.prompt)) not in (None, "/quit"):
            await conversation.take(line or "")
    return 1 if conversation.failed else 0


class Conversation:
    """What was said, and how many messages were not answered."""

    def __init__(self, session: Session, instructions: str, max_tokens: int | None) -> None:
        self.screen = Screen()
        self.failed = 0
        self._session = session
        self._max_tokens = max_tokens
        self._begin = [system(instructions)] if instructions else []
        self._said: list[Message] = []

    async def take(self, line: str) -> None:
        """A line of the person: a message, or at a prompt a command."""
        if self.screen.prompt and line.startswith("/"):
            self._command(line)
        elif line:
            await self._answer(line)

    def _command(self, line: str) -> None:
        if line == "/new":
            self._said.clear()
        remarks = {"/help": COMMANDS, "/new": "What was said is forgotten."}
        self.screen.tell(remarks.get(line, f"There is no {line}; /help lists what there is."))

    async def _answer(self, question: str) -> None:
        turn = await self._session.start(*self._begin, *self._said, user(question), max_output_tokens=self._max_tokens)
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGINT, lambda: asyncio.ensure_future(turn.cancel()))
        self.screen.begin()
        try:
            async for event in turn:
                self.screen.show(event)
        except TidegateError as error:
            self.failed += 1
            self.screen.fail(error)
            return
        finally:
            loop.remove_signal_handler(signal.SIGINT)
        self.screen.end(turn)
        self._said += [user(question), assistant(await turn.text())]


async def _read(prompt: str) -> str | None:
    """The next line of the person; None at the end, which Ctrl-C is too."""
    loop = asyncio.get_running_loop()
    line: asyncio.Future[str | None] = loop.create_future()
    loop.add_signal_handler(signal.SIGINT, _settle, line, None)
    # A thread that nobody waits for: what reads a terminal cannot be interrupted.
    threading.Thread(target=_read_line, args=(loop, line, prompt), daemon=True).start()
    try:
        return await line
    finally:
        loop.remove_signal_handler(signal.SIGINT)


def _read_line(loop: asyncio.AbstractEventLoop, line: asyncio.Future[str | None], prompt: str) -> None:
    try:
        text = input(prompt).strip()
    except (EOFError, OSError, ValueError):  # Ctrl-D, a terminal that has gone, what is no text
        text = None
    with suppress(RuntimeError):  # the program has ended
        loop.call_soon_threadsafe(_settle, line, text)


def _settle(line: asyncio.Future[str | None], text: str | None) -> None:
    if not line.done():
        line.set_result(text)

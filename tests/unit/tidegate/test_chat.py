"""`tidegate chat` at its prompt."""

from __future__ import annotations

import asyncio
import os
import pty
import signal
import sys
from collections.abc import AsyncIterator

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration
from tidegate.v1.chat_service_pb2 import ConverseResponse
from tidegate.v1.event_pb2 import Event, Queued, Started, Usage

from tests.unit.tidegate.scripted_router import Rpc, ScriptedRouter, failed, finished, frame, ready, serve, status_of, text

CHAT = "import sys; from tidegate.chat import main; sys.exit(main())"


@pytest.mark.parametrize("asked", ["", "hello\n"], ids=["at once", "after a turn"])
async def test_ctrl_c_at_the_prompt_leaves(asked: str) -> None:
    """Without another key, and as quietly as Ctrl-D does; the code tells whether a message failed."""
    terminal, inside = pty.openpty()
    command = (sys.executable, "-c", CHAT, "--target", "127.0.0.1:1")  # nobody is there, and nobody is needed
    chat = await asyncio.create_subprocess_exec(*command, stdin=inside, stdout=inside, stderr=inside, start_new_session=True)
    os.close(inside)
    try:
        async with asyncio.timeout(20):
            await read_prompt(terminal)
            if asked:
                os.write(terminal, asked.encode())
                assert "UNREACHABLE" in await read_prompt(terminal)
            chat.send_signal(signal.SIGINT)
            assert await chat.wait() == (1 if asked else 0)
    finally:
        if chat.returncode is None:
            chat.kill()
        os.close(terminal)


async def two_turns(rpc: Rpc) -> AsyncIterator[ConverseResponse]:
    """The first waits and is answered, the second is refused."""
    await rpc.hear("setup")
    yield ready(1, 0)
    await rpc.hear("start")
    yield frame(2, Event(turn=1, queued=Queued(position=3, eta=Duration(seconds=4))))
    used = Event(turn=1, usage=Usage(prompt_tokens=40, completion_tokens=20, cached_tokens=32))
    yield frame(3, Event(turn=1, started=Started(model="small")), text("Hello"), used, finished())
    await rpc.hear("start")
    yield frame(4, failed(status_of(grpc.StatusCode.INVALID_ARGUMENT, "FIELD_INVALID"), turn=2))
    await rpc.hear_half_close()


async def test_pipes_get_plain_answers_and_the_code_tells_of_a_failure() -> None:
    """Each line is a message, commands of the prompt too; no prompt, no escape code, and faults go to standard error."""
    async with serve(ScriptedRouter(two_turns)) as target:
        command = (sys.executable, "-c", CHAT, "--target", target)
        pipe = asyncio.subprocess.PIPE
        chat = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe, stderr=pipe)
        output, errors = await asyncio.wait_for(chat.communicate(b"hello\n\n/help\n"), 60)
    assert output == b"Hello\n"
    assert errors.startswith(b"tidegate chat: INVALID_ARGUMENT FIELD_INVALID")
    assert (errors.count(b"\n"), chat.returncode) == (1, 1)


async def test_a_terminal_shows_whom_one_talks_to_the_place_and_what_an_answer_took() -> None:
    """And /help lists what can be typed, without asking the model."""
    terminal, inside = pty.openpty()
    async with serve(ScriptedRouter(two_turns)) as target:
        command = (sys.executable, "-c", CHAT, "--target", target)
        chat = await asyncio.create_subprocess_exec(*command, stdin=inside, stdout=inside, stderr=inside, start_new_session=True)
        os.close(inside)
        try:
            async with asyncio.timeout(60):
                assert f"Tidegate at {target}" in await read_prompt(terminal)
                os.write(terminal, b"/help\n")
                assert "/quit" in await read_prompt(terminal)
                os.write(terminal, b"/helpp\n")
                assert "There is no /helpp" in await read_prompt(terminal)
                os.write(terminal, b"hello\n")
                shown = await read_prompt(terminal)
                assert "waiting: 3 before you, about 4 s" in shown
                assert "small \u00b7 first token after " in shown
                assert "40 tokens in (32 cached), 20 out" in shown
                os.write(terminal, b"/quit\n")
                assert await chat.wait() == 0
        finally:
            if chat.returncode is None:
                chat.kill()
            os.close(terminal)


async def read_prompt(terminal: int) -> str:
    """What the screen shows until the next prompt."""
    shown = ""
    while not shown.endswith("> "):
        shown += (await asyncio.to_thread(os.read, terminal, 4096)).decode()
    return shown

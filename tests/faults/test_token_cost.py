"""What a token costs does not depend on how many came before it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType

import pytest
from tidegate.v1.chat_service_pb2 import ConverseResponse

from router.model import WorkerDelta
from router.text.decode import Decoder
from router.transport.outbox import Outbox
from router.turn import Turn

TABLE = [bytes((byte,)) for byte in range(256)]
NEAR_MISS = ("aaaaab", "aac")
"""Stops that each new `a` keeps beginning anew."""


def feed(turn: Turn, outbox: Outbox[ConverseResponse], count: int) -> None:
    """Tokens one by one through the turn into the outbox, as the frame loop does it."""
    for _ in range(count):
        outbox.put(1, turn.feed(WorkerDelta([97], log_probs=[-1.0])))


def count_calls(work: Callable[[], None]) -> int:
    """Calls of Python and C functions that the work makes."""
    calls = 0

    def note(frame: FrameType, event: str, argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
    return calls


@pytest.mark.parametrize("stops", [(), NEAR_MISS])
def test_the_last_tokens_cost_what_the_first_did(stops: tuple[str, ...]) -> None:
    """A hundred tokens at the end of a long answer make as many calls as a hundred at its beginning."""
    turn, outbox = Turn(Decoder(TABLE), stops, 10), Outbox(ConverseResponse, "id")
    feed(turn, outbox, 100)
    first = count_calls(lambda: feed(turn, outbox, 100))
    feed(turn, outbox, 4000)
    assert count_calls(lambda: feed(turn, outbox, 100)) == first


@pytest.mark.timeout(10)
@pytest.mark.parametrize("stops", [(), NEAR_MISS])
def test_a_very_long_answer_is_not_copied_for_each_token(stops: tuple[str, ...]) -> None:
    """A hundred thousand tokens, log probabilities among them, go through a turn in seconds while nobody reads."""
    turn, outbox = Turn(Decoder(TABLE), stops, 10, logprobs=True), Outbox(ConverseResponse, "id")
    feed(turn, outbox, 100_000)
    assert turn.usage.completion_tokens == 100_000

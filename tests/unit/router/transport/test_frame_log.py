"""The log of sent frames: what it gives again, and what it lets go."""

from __future__ import annotations

import pytest

from router.errors import CallerError
from router.transport.frame_log import IN_FLIGHT_S, FrameLog


class Clock:
    """Seconds that tests let pass."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def filled(frames: int, *, max_bytes: int = 1000, clock: Clock | None = None) -> FrameLog:
    """A log with frames that hold their number, ten bytes each."""
    log = FrameLog(max_bytes, clock or Clock())
    for number in range(1, frames + 1):
        log.append(b"%10d" % number)
    return log


def numbers(frames: object) -> list[int]:
    return [int(data) for data in frames]  # type: ignore[attr-defined]


@pytest.mark.parametrize("arrived", range(6))
def test_what_has_not_arrived_is_given_again(arrived: int) -> None:
    """All frames behind the last that arrived, in order; those before are let go."""
    log = filled(5)
    assert numbers(log.replay(arrived)) == list(range(arrived + 1, 6))
    assert (log.first, log.last) == (arrived + 1, 5)


@pytest.mark.parametrize("arrived", [0, 2, 6, 100])
def test_a_gap_is_told(arrived: int) -> None:
    """Neither a frame that was let go is left out silently, nor one that never was believed; the log stays as it is."""
    log = filled(5)
    log.replay(3)
    with pytest.raises(CallerError, match="not held"):
        log.replay(arrived)
    assert numbers(log.replay(3)) == [4, 5]


def test_bytes_are_bounded() -> None:
    """The oldest go, the newest stays whatever its size."""
    log = filled(5, max_bytes=30)
    assert (log.first, log.last) == (3, 5)
    log.append(b"x" * 100)
    assert (log.first, log.last) == (6, 6)


def test_what_has_arrived_for_sure_is_let_go() -> None:
    """A frame that went over a connection which still stood a minute later; one that is sent again is on its way again."""
    clock = Clock()
    log = filled(3, clock=clock)
    clock.now += IN_FLIGHT_S - 1
    assert numbers(log.replay(1)) == [2, 3]
    clock.now += 2
    log.append(b"4")
    assert numbers(log.replay(1)) == [2, 3, 4]
    clock.now += IN_FLIGHT_S + 1
    log.append(b"5")
    assert (log.first, log.last) == (5, 5)


def test_a_log_goes_on_elsewhere() -> None:
    """With the frames that were kept, under their numbers."""
    log = FrameLog(1000, last=7, frames=[b"6", b"7"])
    log.append(b"8")
    assert numbers(log.tail(7)) == [7, 8]
    assert numbers(log.replay(5)) == [6, 7, 8]
    with pytest.raises(CallerError):
        FrameLog(1000, last=7).replay(6)


def test_an_empty_log_has_nothing_to_give() -> None:
    """And misses nothing."""
    log = FrameLog(1000)
    assert list(log.replay(0)) == []
    assert (log.first, log.last) == (1, 0)

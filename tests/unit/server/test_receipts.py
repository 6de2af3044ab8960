"""What was made for routers that are gone: kept for them, told once, and in the end given to their neighbours."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from server.engine.base import Description, Finish, Load, Output
from server.lanes import WRITE_DOWN_S, Frame, Lane
from server.receipts import WAIT_S, Receipt, Receipts
from tests.unit.server.test_lanes import DESCRIPTION, LOAD


def test_receipts_are_for_the_router_of_that_name() -> None:
    """Taken once; another router gets them when theirs has not asked for a minute."""
    receipts = Receipts()
    receipts.put("one", [Receipt("a", 3)], 0.0)
    receipts.put("two", [Receipt("b", 4)], 10.0)
    assert receipts.take("one", 11.0) == [Receipt("a", 3)]
    assert receipts.take("one", WAIT_S + 10.0) == []
    assert receipts.take("one", WAIT_S + 10.1) == [Receipt("b", 4)]
    assert receipts.take("two", WAIT_S + 10.1) == []


def test_what_nobody_accounts_for_leaves_no_receipt() -> None:
    """Callers without an account, as tests and benches are, cost no memory."""
    receipts = Receipts()
    receipts.put("one", [Receipt("", 3)], 0.0)
    assert receipts.take("one", 0.0) == []


def test_the_oldest_receipts_are_dropped_beyond_the_bound() -> None:
    """A worker whose routers never come back keeps ten thousand."""
    receipts = Receipts()
    receipts.put("one", (Receipt(str(number)) for number in range(10_005)), 0.0)
    taken = receipts.take("one", 0.0)
    assert (len(taken), taken[0].account) == (10_000, "5")


class Book:
    """A lane whose frames are taken as they come."""

    def __init__(self, description: Description = DESCRIPTION, load: Load = LOAD) -> None:
        self.lane = Lane(description, "router-1")
        self._load = load
        self.take()

    def take(self) -> Frame:
        frame = self.lane.take_frame(self._load, even_if_empty=True)
        assert frame is not None
        return frame

    def receipts(self) -> Sequence[tuple[str, int]]:
        return [(it.account, it.tokens) for it in self.lane.receipts]


def test_a_lane_counts_what_was_made_not_what_was_sent() -> None:
    """The tokens of a frame that was never sent are in the receipt: the engine made them."""
    book = Book()
    book.lane.open_request(1, 11, "turn-1")
    book.lane.add(1, Output(11, [5, 6]))
    book.take()
    book.lane.add(1, Output(11, [7]))
    assert book.receipts() == [("turn-1", 3)]


def test_an_end_that_was_written_down_leaves_no_receipt() -> None:
    """Until the router acknowledges the frame that brought it, it may not have read it; for a moment more it may not have it on disk."""
    book = Book()
    book.lane.open_request(1, 11, "turn-1")
    book.lane.add(1, Output(11, [5], Finish.LENGTH))
    frame = book.take()
    assert book.receipts() == [("turn-1", 1)]
    book.lane.acknowledge(frame.sequence, 10.0)
    assert book.receipts() == [("turn-1", 1)]
    book.lane.acknowledge(frame.sequence, 10.1 + WRITE_DOWN_S)
    assert book.receipts() == []


def test_a_turn_that_its_router_cancelled_leaves_no_receipt() -> None:
    """The router has charged it."""
    book = Book()
    book.lane.open_request(1, 11, "turn-1")
    book.lane.add(1, Output(11, [5]))
    book.lane.close_request(1)
    assert book.receipts() == []


def test_inherited_receipts_travel_with_the_next_frame_until_it_is_read() -> None:
    """A router that dies before it has read them leaves them to the next."""
    book = Book()
    book.lane.inherit([Receipt("turn-0", 9, 4)])
    frame = book.take()
    told: Any = json.loads(frame.detail[0])
    assert told == {"receipts": [{"account": "turn-0", "tokens": 9, "cached_tokens": 4}]}
    assert book.take().detail == []
    assert book.receipts() == [("turn-0", 9)]
    book.lane.acknowledge(frame.sequence, 10.0)
    book.lane.acknowledge(frame.sequence, 10.1 + WRITE_DOWN_S)
    assert book.receipts() == []

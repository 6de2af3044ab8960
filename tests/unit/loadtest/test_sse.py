"""Server-sent events, cut anywhere."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from loadtest.targets.sse import EventParser

BODY = '\ufeffdata: {"a":"é"}\r\n\r\ndata:b\rdata:  c\r\r: comment\nid: 7\nevent: x\n\ndata\n\ndata: 🔥\n\n'.encode()
EVENTS = ['{"a":"é"}', "b\n c", "", "🔥"]


def parse(*pieces: bytes) -> list[str]:
    parser = EventParser()
    return [event for piece in pieces for event in parser.feed(piece)]


@pytest.mark.parametrize("cut", range(len(BODY) + 1))
def test_every_cut_in_two_gives_the_same_events(cut: int) -> None:
    """Between CR and LF, inside a character and inside the byte order mark too."""
    assert parse(BODY[:cut], BODY[cut:]) == EVENTS


def test_single_bytes_give_the_same_events() -> None:
    """As a slow network would bring them."""
    assert parse(*(bytes([byte]) for byte in BODY)) == EVENTS


@given(st.lists(st.integers(0, len(BODY)), max_size=8))
def test_any_pieces_give_the_same_events(cuts: list[int]) -> None:
    """Empty pieces too."""
    edges = [0, *sorted(cuts), len(BODY)]
    assert parse(*(BODY[left:right] for left, right in pairwise(edges))) == EVENTS


def test_an_event_that_is_not_complete_is_not_given() -> None:
    """An answer that was cut has no last event."""
    assert parse(b"data: a\n\ndata: b\n") == ["a"]

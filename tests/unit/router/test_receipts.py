"""What workers tell of turns whose router was lost: only what a router wrote counts, and no more than was asked for."""

from __future__ import annotations

from dataclasses import replace

import pytest

from router.auth.keys import KeyHash
from router.ledger.entry import UsageEntry
from router.spending import read_account, write_account
from router.upstream.link import Receipt
from tests.unit.router.fake_spending import FakeSpending

KEYS = KeyHash(b"a" * 32)
ENTRY = UsageEntry("turn-1", "acme", "ann", "key", "small", "small", 10, 0, 0, "", 1000.0, 1000.0, "router-1")
ACCOUNT = write_account(ENTRY, 50, KEYS)


def test_a_receipt_is_charged_what_the_worker_made() -> None:
    """To whom the router said, at the moment it is told."""
    entry = read_account(Receipt(ACCOUNT, 7, 4), KEYS, 1010.0)
    assert entry == replace(ENTRY, completion_tokens=7, cached_tokens=4, finish="lost", ended_at=1010.0)


@pytest.mark.parametrize(("told", "charged"), [(50, 50), (51, 50), (999_999_999_999, 50), (0, 0), (-1, 0)])
def test_a_receipt_is_charged_at_most_what_was_asked_for(told: int, charged: int) -> None:
    """Whatever number a worker tells, and never less than nothing."""
    assert read_account(Receipt(ACCOUNT, told, 0), KEYS, 1010.0).completion_tokens == charged


@pytest.mark.parametrize("cached", [-1, 11])
def test_cached_tokens_are_part_of_the_prompt(cached: int) -> None:
    """The database would refuse others, and all entries behind them."""
    assert 0 <= read_account(Receipt(ACCOUNT, 7, cached), KEYS, 1010.0).cached_tokens <= 10


@pytest.mark.parametrize(
    "account",
    [
        "",
        ENTRY.to_line(),
        ACCOUNT.replace("acme", "other"),
        ACCOUNT.replace(" 50 ", " 5000 "),
        ACCOUNT[1:],
        "\ud800" + ACCOUNT,
        write_account(ENTRY, 50, KeyHash(b"b" * 32)),
    ],
    ids=["empty", "unsigned", "other tenant", "more", "cut", "no text", "other pepper"],
)
def test_a_receipt_that_no_router_wrote_is_not_believed(account: str) -> None:
    """Whoever reaches a worker's port could bill anybody."""
    with pytest.raises(ValueError, match=r"pepper|surrogates"):
        read_account(Receipt(account, 7, 0), KEYS, 1010.0)


def test_a_receipt_under_the_pepper_of_before_counts() -> None:
    """Turns run on while the pepper is changed."""
    changed = KeyHash(b"c" * 32, b"a" * 32)
    assert read_account(Receipt(ACCOUNT, 7, 0), changed, 1010.0).completion_tokens == 7


def test_a_forged_receipt_leaves_no_entry() -> None:
    """Nor does it hold up the receipts beside it."""
    fake = FakeSpending()
    fake.as_spending().take_receipts([Receipt(ENTRY.to_line(), 7, 0), Receipt("{", 7, 0)])
    assert not fake.book.lost
    fake.as_spending().take_receipts([Receipt("nothing", 7, 0), Receipt(write_account(ENTRY, 50, fake.keys), 7, 0)])
    assert [entry.completion_tokens for entry in fake.book.lost] == [7]

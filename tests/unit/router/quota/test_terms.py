"""The terms of service in memory: whose limits a turn comes under, what it costs at a time, and how changes arrive."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest

from router.quota.limits import Limits, Price, SubjectKind
from router.quota.terms import Terms, read_subject
from router.store.database import StoreAway
from router.store.rows import PriceRow, QuotaRow
from tests.bench.waiting import until
from tests.unit.router.fake_spending import FakeTermsSource


def at(second: int) -> datetime:
    return datetime.fromtimestamp(second, UTC)


async def read(source: FakeTermsSource, now: float = 0.0) -> Terms:
    terms = Terms(source, lambda: now)
    await terms.refresh()
    return terms


async def test_a_turn_comes_under_every_scope_that_fits_it() -> None:
    """The tenant's, the user's, the key's and the model's, and those of two together; nobody else's."""
    scopes = [
        QuotaRow("acme", requests_per_minute=1),
        QuotaRow("acme", user="ann", requests_per_minute=2),
        QuotaRow("acme", key="k1", requests_per_minute=3),
        QuotaRow("acme", model="m", requests_per_minute=4),
        QuotaRow("acme", user="ann", model="m", requests_per_minute=5),
        QuotaRow("acme", user="bob", requests_per_minute=6),
        QuotaRow("globex", requests_per_minute=7),
    ]
    terms = await read(FakeTermsSource(scopes))
    assert {subject.limits.requests_per_minute for subject in terms.find_subjects("acme", "ann", "k1", "m")} == {1, 2, 3, 4, 5}
    assert {subject.limits.requests_per_minute for subject in terms.find_subjects("acme", "eve", "", "n")} == {1}


def test_a_scope_is_named_by_its_narrowest_part_and_counted_apart() -> None:
    """Names that hold the separator do not make two scopes one."""
    parts: list[dict[str, Any]] = [{}, {"user": "u"}, {"key": "k"}, {"user": "u", "model": "m"}]
    kinds = [read_subject(QuotaRow("t", **names)).kind for names in parts]
    assert kinds == [SubjectKind.TENANT, SubjectKind.USER, SubjectKind.KEY, SubjectKind.MODEL]
    assert read_subject(QuotaRow("a/b", user="c")).id != read_subject(QuotaRow("a", user="b/c")).id


def test_money_is_counted_in_micros() -> None:
    """Exactly, as decimals are."""
    assert read_subject(QuotaRow("t", money_per_month=Decimal("12.345678"))).limits == Limits(micros_per_month=12_345_678)


async def test_the_price_is_that_of_the_time() -> None:
    """The latest that has begun; before the first, and without any, a model costs nothing."""
    prices = [PriceRow("m", at(20), Decimal(2), Decimal("0.5"), Decimal(4)), PriceRow("m", at(10), Decimal(1), Decimal(1), Decimal(1))]
    source = FakeTermsSource(prices=prices)
    assert [(await read(source, now)).find_price("m") for now in (9.0, 10.0, 20.0)] == [
        None,
        Price(1_000_000, 1_000_000, 1_000_000),
        Price(2_000_000, 4_000_000, 500_000),
    ]
    assert (await read(source)).find_price("other") is None


async def test_terms_are_read_again_only_when_they_changed() -> None:
    """The version tells; whatever changes, the whole is read."""
    source = FakeTermsSource(weights={"acme": 2.0}, no_downgrade=["acme"])
    terms = await read(source)
    assert (terms.find_weight("acme"), terms.find_weight("globex")) == (2.0, 1.0)
    assert (terms.may_downgrade("acme"), terms.may_downgrade("globex")) == (False, True)
    await terms.refresh()
    assert source.reads == 1
    source.version, source.rows.quotas[:] = 2, [QuotaRow("acme", requests_per_minute=1)]
    await terms.refresh()
    assert (source.reads, len(terms.find_subjects("acme", "u", "", "m"))) == (2, 1)


async def test_drains_are_passed_on_whenever_terms_are_read() -> None:
    """At first, before there are workers, and with every change."""
    source, told = FakeTermsSource(drained=["w:1"]), list[frozenset[str]]()
    terms = Terms(source, lambda: 0.0, told.append)
    await terms.refresh()
    source.version, source.rows = 2, replace(source.rows, drained=frozenset())
    await terms.refresh()
    assert (told, terms.drained) == ([frozenset({"w:1"}), frozenset()], frozenset())


async def test_the_last_terms_stay_while_the_source_is_away() -> None:
    """And the new ones come when it is back; a router does not start without any."""
    source = FakeTermsSource([QuotaRow("acme", requests_per_minute=1)])
    async with Terms(source, lambda: 0.0, poll_s=0.001).running() as terms:
        source.error = StoreAway()
        await until(lambda: terms.is_stale)
        assert terms.find_subjects("acme", "u", "", "m")
        source.error, source.version = None, 2
        source.rows.quotas.clear()
        await until(lambda: not terms.find_subjects("acme", "u", "", "m"))
    source.error = StoreAway()
    with pytest.raises(StoreAway):
        await read(source)

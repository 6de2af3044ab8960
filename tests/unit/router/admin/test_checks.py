"""What administrators may send."""

from __future__ import annotations

from datetime import date, timedelta
from decimal import Decimal

import pytest

from router.admin import checks
from router.errors import CallerError
from router.store.rows import QuotaRow


@pytest.mark.parametrize("text", ["", "a" * 257, " a", "a ", "a\nb", "a\0", "\u202egnp.exe", "\ud800", "\u00a0"])
def test_an_id_is_short_and_printable(text: str) -> None:
    """It goes to logs, metrics, bills and terminals; what cannot be seen could pass for something else."""
    assert list(checks.check_id("x", text))


@pytest.mark.parametrize("text", ["a", "a" * 256, "auth0|7", "spiffe://acme/billing", "Grüße an alle", "名前"])
def test_an_id_may_be_what_issuers_use(text: str) -> None:
    """In any script."""
    assert not list(checks.check_id("x", text))


@pytest.mark.parametrize("text", ["", "-1", "+1", "1e3", "1.", ".5", "1.0000001", "123456789", "NaN", "Infinity", "1,5", " 1", "١", "1\n"])
def test_money_is_plain_decimal_text(text: str) -> None:
    """That the database's columns hold exactly."""
    with pytest.raises(CallerError) as caught:
        checks.read_money("price.prompt", text)
    assert [violation.field for violation in caught.value.violations] == ["price.prompt"]


def test_money_stays_exact() -> None:
    """To the last digit."""
    assert checks.read_money("x", "99999999.999999") == Decimal("99999999.999999")


@pytest.mark.parametrize(("weight", "right"), [(0.001, True), (1000, True), (None, True), (0, False), (-1, False), (float("nan"), False)])
def test_a_weight_is_a_share(weight: float | None, right: bool) -> None:
    """Above zero, and within what the counters add up exactly."""
    assert (not list(checks.check_weight("weight", weight))) is right


def test_all_faults_are_told_at_once() -> None:
    """Each with its field."""
    quota = QuotaRow("acme", "ann", "key", " m", requests_per_minute=10**15 + 1, tokens_per_day=-1, concurrent_turns=0)
    with pytest.raises(CallerError) as caught:
        checks.require(checks.check_scope("quota.scope", quota), checks.check_limits("quota.limits", quota))
    assert [violation.field for violation in caught.value.violations] == [
        "quota.scope.model",
        "quota.scope.user_id",
        "quota.limits.requests_per_minute",
        "quota.limits.tokens_per_day",
    ]


def test_models_are_few_and_named() -> None:
    """None and none at all are both fine."""
    assert not [*checks.check_models("models", None), *checks.check_models("models", [])]
    assert [violation.field for violation in checks.check_models("models", ["a", ""])] == ["models[1]"]
    assert [violation.field for violation in checks.check_models("models", ["a"] * 101)] == ["models"]


@pytest.mark.parametrize(("days", "right"), [(0, True), (365, True), (366, False), (-1, False)])
def test_a_report_is_of_at_most_a_year(days: int, right: bool) -> None:
    """From the first day to the last, both included."""
    first = date(2024, 1, 1)
    assert (not list(checks.check_days("filter", first, first + timedelta(days=days)))) is right

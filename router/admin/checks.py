"""What an administrator's request must satisfy. Names go to logs, metrics, bills and terminals, so they are short and printable."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import fields
from datetime import date, datetime, timedelta
from decimal import Decimal
from itertools import chain

from router.errors import Violation, field_invalid
from router.store.rows import QuotaRow

_MONEY = re.compile(r"[0-9]{1,8}(\.[0-9]{1,6})?", re.ASCII)
_MAX_CHARS = 256
_MAX_MODELS = 100
_WEIGHTS = (0.001, 1000.0)
_MAX_LIMIT = 10**15  # the quota scripts count in doubles
_MAX_OVERLAP = timedelta(days=90)
_MAX_DAYS = 366

Check = Iterable[Violation]


def require(*checks: Check) -> None:
    """Raises CallerError FIELD_INVALID with all that is wrong."""
    violations = tuple(chain.from_iterable(checks))
    if violations:
        raise field_invalid(*violations)


def read_money(field: str, text: str) -> Decimal:
    """An exact amount. Raises CallerError FIELD_INVALID."""
    if not _MONEY.fullmatch(text):
        raise field_invalid(Violation(field, "must be a decimal like 250 or 0.5, with at most 8 digits before and 6 after the point"))
    return Decimal(text)


def check_id(field: str, text: str) -> Iterator[Violation]:
    """What names something."""
    if not 0 < len(text) <= _MAX_CHARS or not text.isprintable() or text != text.strip():
        yield Violation(field, f"must have from 1 to {_MAX_CHARS} printable characters, without space at either end")


def check_filter(field: str, text: str) -> Iterator[Violation]:
    """An id, or empty for all."""
    if text:
        yield from check_id(field, text)


def check_name(field: str, text: str | None) -> Iterator[Violation]:
    """A name for people; None is none given."""
    if text is not None and not (len(text) <= _MAX_CHARS and text.isprintable()):
        yield Violation(field, f"must have at most {_MAX_CHARS} printable characters")


def check_other(field: str, tenant: str, own: str | None) -> Iterator[Violation]:
    """A tenant that is not the caller's own."""
    if tenant == own:
        yield Violation(field, "must not be the caller's own tenant: nobody would be left to enable it")


def check_weight(field: str, weight: float | None) -> Iterator[Violation]:
    """A tenant's share; None is none given."""
    low, high = _WEIGHTS
    if weight is not None and not low <= weight <= high:
        yield Violation(field, f"must be from {low:g} to {high:g}")


def check_models(field: str, models: Collection[str] | None) -> Iterator[Violation]:
    """Names of models; None is all."""
    if models is None:
        return
    if len(models) > _MAX_MODELS:
        yield Violation(field, f"must hold at most {_MAX_MODELS} models")
        return
    for index, model in enumerate(models):
        yield from check_id(f"{field}[{index}]", model)


def check_overlap(field: str, overlap: timedelta) -> Iterator[Violation]:
    """How long a rotated key goes on working."""
    if not timedelta() <= overlap <= _MAX_OVERLAP:
        yield Violation(field, f"must be from 0 to {_MAX_OVERLAP.days} days")


def check_future(field: str, at: datetime | None, now: datetime) -> Iterator[Violation]:
    """A time that has not come; None is none given."""
    if at is not None and at < now:
        yield Violation(field, "must not be in the past")


def check_scope(path: str, quota: QuotaRow) -> Iterator[Violation]:
    """Whose use is limited."""
    yield from check_id(f"{path}.tenant_id", quota.tenant)
    yield from check_filter(f"{path}.user_id", quota.user)
    yield from check_filter(f"{path}.key_prefix", quota.key)
    yield from check_filter(f"{path}.model", quota.model)
    if quota.user and quota.key:
        yield Violation(f"{path}.user_id", "must be empty beside a key, which has a user")


LIMITS = tuple(column.name for column in fields(QuotaRow) if column.default is None)
"""The limits that a quota may have."""


def check_limits(path: str, quota: QuotaRow) -> Iterator[Violation]:
    """How much it may be."""
    limits = {name: getattr(quota, name) for name in LIMITS}
    if all(limit is None for limit in limits.values()):
        yield Violation(path, "must hold a limit; a quota without any is deleted")
    for name, limit in limits.items():
        if limit is not None and not 0 <= limit <= _MAX_LIMIT:
            yield Violation(f"{path}.{name}", f"must be from 0 to {_MAX_LIMIT}")


def check_days(path: str, first: date, last: date) -> Iterator[Violation]:
    """Days of a report."""
    if last < first:
        yield Violation(f"{path}.last_day", "must not be before the first day")
    elif last == date.max:
        yield Violation(f"{path}.last_day", "must have a day after it")
    elif (last - first).days >= _MAX_DAYS:
        yield Violation(f"{path}.last_day", f"must be within {_MAX_DAYS} days")

"""What the tables hold, row by row. Column names are field names; times have a zone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import Any


@dataclass(frozen=True, slots=True)
class TenantRow:
    """A customer of the installation: what quotas, fairness and bills are about.

    `weight` is its share of busy workers, against others'. With `no_downgrade` no smaller model answers in place of the one asked for.
    """

    id: str
    name: str
    weight: float
    no_downgrade: bool
    created_at: datetime
    disabled_at: datetime | None


@dataclass(frozen=True, slots=True)
class UserRow:
    """A person or program of a tenant."""

    tenant: str
    id: str
    name: str
    created_at: datetime


@dataclass(frozen=True, slots=True)
class KeyDigests:
    """What a key is recognised by: its digest, and the name of the pepper that it is under, None if that is not known. While another pepper
    takes that one's place there is a second digest, under the next."""

    digest: bytes
    pepper: str | None = None
    next_digest: bytes | None = None
    next_pepper: str | None = None


@dataclass(frozen=True, slots=True)
class KeyRow:
    """An API key: not the key, but what is needed to recognise it, as KeyDigests says. `models` None is every model."""

    prefix: str
    digest: bytes
    tenant: str
    user: str
    name: str
    roles: list[str]
    models: list[str] | None
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None
    pepper: str | None = None
    next_digest: bytes | None = None
    next_pepper: str | None = None


@dataclass(frozen=True, slots=True)
class QuotaRow:
    """Limits of a scope. An empty user, key or model is "any, together"; a limit of None is no limit and 0 is a limit of zero."""

    tenant: str
    user: str = ""
    key: str = ""
    model: str = ""
    requests_per_minute: int | None = None
    input_tokens_per_minute: int | None = None
    output_tokens_per_minute: int | None = None
    tokens_per_day: int | None = None
    concurrent_turns: int | None = None
    money_per_month: Decimal | None = None


@dataclass(frozen=True, slots=True)
class PriceRow:
    """Money for a million tokens of a model, from a time on. `cached` is for the cached part of the prompt, `prompt` for the rest."""

    model: str
    valid_from: datetime
    prompt: Decimal
    cached: Decimal
    completion: Decimal


@dataclass(frozen=True, slots=True)
class TermRows:
    """All terms of service. Tenants that are not in `weights` have weight 1, those not in `no_downgrade` allow downgrades. Workers at the
    addresses in `drained` get no new turns."""

    quotas: list[QuotaRow]
    prices: list[PriceRow]
    weights: Mapping[str, float]
    no_downgrade: frozenset[str]
    drained: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class UsageRow:
    """A turn in the ledger. `cached_tokens` are part of `prompt_tokens`; a `cost` of None is a model without a price."""

    turn: str
    tenant: str
    user: str
    key: str
    model_asked: str
    model_served: str
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    finish: str
    started_at: datetime
    ended_at: datetime
    router: str
    priced_from: datetime | None
    cost: Decimal | None


@dataclass(frozen=True, slots=True)
class UsageDayRow:
    """What one user, key and model used on a UTC day; `cost` is that of the priced turns."""

    day: date
    tenant: str
    user: str
    key: str
    model_served: str
    turns: int
    unpriced_turns: int
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    cost: Decimal


@dataclass(frozen=True, slots=True)
class AuditRow:
    """A change by an administrator: who, what, when."""

    id: int
    at: datetime
    actor: str
    action: str
    tenant: str
    target: str
    detail: Mapping[str, Any]

"""The words of quotas: who is limited, in what, and how much. Missing is no limit; zero is a limit that nothing passes."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from enum import Enum
from typing import Literal

from router.quota.window import DAY, MINUTE, MONTH, Window

Metric = Literal["requests", "input_tokens", "output_tokens", "tokens", "micros", "turns"]

_MILLION = 1_000_000


class SubjectKind(Enum):
    """Whose limit it is."""

    TENANT = "tenant"
    USER = "user"
    KEY = "key"
    MODEL = "model"


@dataclass(frozen=True, slots=True)
class Rule:
    """A kind of limit: its stable name, what it counts and over which window; None is "at once"."""

    name: str
    metric: Metric
    window: Window | None


RULES = (
    Rule("requests_per_minute", "requests", MINUTE),
    Rule("input_tokens_per_minute", "input_tokens", MINUTE),
    Rule("output_tokens_per_minute", "output_tokens", MINUTE),
    Rule("tokens_per_day", "tokens", DAY),
    Rule("concurrent_turns", "turns", None),
    Rule("micros_per_month", "micros", MONTH),
)


@dataclass(frozen=True, slots=True)
class Limits:
    """A subject's limits; the fields are the names of RULES. A month is any 30 days, a micro is a millionth of the currency's unit."""

    requests_per_minute: int | None = None
    input_tokens_per_minute: int | None = None
    output_tokens_per_minute: int | None = None
    tokens_per_day: int | None = None
    concurrent_turns: int | None = None
    micros_per_month: int | None = None

    def __post_init__(self) -> None:
        for each in fields(self):
            if (getattr(self, each.name) or 0) < 0:
                raise ValueError(f"{each.name} must not be negative")


@dataclass(frozen=True, slots=True)
class Bound:
    """One limit of one subject. `key` names its counter: the same in every router."""

    key: str
    kind: SubjectKind
    rule: Rule
    limit: int


@dataclass(frozen=True, slots=True)
class Subject:
    """Somebody who has limits; worth keeping from turn to turn. The id is unique within its kind: a user's holds its tenant's."""

    kind: SubjectKind
    id: str
    limits: Limits
    bounds: tuple[Bound, ...] = field(init=False, repr=False, compare=False)
    """The limits that are set."""

    def __post_init__(self) -> None:
        limits = ((rule, getattr(self.limits, rule.name)) for rule in RULES)
        bounds = (Bound(f"{self.kind.value}:{self.id}:{rule.name}", self.kind, rule, limit) for rule, limit in limits if limit is not None)
        object.__setattr__(self, "bounds", tuple(bounds))


@dataclass(frozen=True, slots=True)
class Amounts:
    """What a turn books or has used. `micros` is money in millionths."""

    requests: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    micros: int = 0

    def of(self, metric: Metric) -> int:
        """How much of a metric this is. Turns are counted by their holds, not by amounts."""
        amount: int = 0 if metric == "turns" else getattr(self, metric)
        return amount

    @property
    def tokens(self) -> int:
        """Input and output."""
        return self.input_tokens + self.output_tokens

    def as_list(self) -> list[int]:
        """In the order of the fields, which is the order of the scripts."""
        return [self.requests, self.input_tokens, self.output_tokens, self.micros]

    def __add__(self, other: Amounts) -> Amounts:
        return Amounts(*(mine + theirs for mine, theirs in zip(self.as_list(), other.as_list(), strict=True)))

    def __bool__(self) -> bool:
        return any(self.as_list())


@dataclass(frozen=True, slots=True)
class Price:
    """Micros per million tokens, so that prices below a micro per token stay whole numbers. Cached input costs like other by default."""

    input_per_million: int = 0
    output_per_million: int = 0
    cached_per_million: int | None = None

    def cost(self, input_tokens: int, output_tokens: int, cached_tokens: int = 0) -> int:
        """Micros, rounded up. The cached tokens are part of the input."""
        cached = self.input_per_million if self.cached_per_million is None else self.cached_per_million
        new = (input_tokens - cached_tokens) * self.input_per_million
        return -(-(new + cached_tokens * cached + output_tokens * self.output_per_million) // _MILLION)

    def affordable_output(self, micros: int, input_tokens: int) -> int | None:
        """The most output tokens that this much money pays for besides the input; None when they cost nothing."""
        if not self.output_per_million:
            return None
        return (micros * _MILLION - input_tokens * self.input_per_million) // self.output_per_million


FREE = Price()

"""The words of quotas: who is limited, in what, and how much. Missing is no limit; zero is a limit that nothing passes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, fields
from enum import Enum
from functools import lru_cache
from operator import add, sub
from typing import Literal, get_args, overload

from router.quota.window import DAY, MINUTE, MONTH, Window

Metric = Literal["requests", "input_tokens", "output_tokens", "tokens", "micros", "turns"]
METRICS: tuple[Metric, ...] = get_args(Metric)

CALLERS = 4_096
"""For so many callers what is worked out about their bounds is kept."""

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
    place: int = field(init=False, repr=False, compare=False)
    """Where its metric is in METRICS."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "place", METRICS.index(self.metric))


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


class Bounds(Sequence[Bound]):
    """All limits that something comes under, in their order. No two are equal, so that what is worked out about one can be kept by it."""

    __slots__ = ("_all", "least")

    def __init__(self, bounds: Iterable[Bound]) -> None:
        self._all = tuple(bounds)
        self.least: dict[Metric, int] = {}
        """The smallest limit of each metric that is limited."""
        for bound in self._all:
            self.least[bound.rule.metric] = min(bound.limit, self.least.get(bound.rule.metric, bound.limit))

    def __iter__(self) -> Iterator[Bound]:
        return iter(self._all)

    def __len__(self) -> int:
        return len(self._all)

    @overload
    def __getitem__(self, at: int) -> Bound: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[Bound]: ...
    def __getitem__(self, at: int | slice) -> Bound | Sequence[Bound]:
        return self._all[at]


@dataclass(frozen=True, slots=True, eq=False)
class Subject:
    """Somebody who has limits; worth keeping from turn to turn. The id is unique within its kind: a user's holds its tenant's."""

    kind: SubjectKind
    id: str
    limits: Limits
    bounds: Bounds = field(init=False, repr=False)
    """The limits that are set."""

    def __post_init__(self) -> None:
        limits = ((rule, getattr(self.limits, rule.name)) for rule in RULES)
        bounds = (Bound(f"{self.kind.value}:{self.id}:{rule.name}", self.kind, rule, limit) for rule, limit in limits if limit is not None)
        object.__setattr__(self, "bounds", Bounds(bounds))


@lru_cache(maxsize=CALLERS)
def join_bounds(subjects: tuple[Subject, ...]) -> Bounds:
    """All limits of all subjects; the same subjects, which turns of one caller have, get the same object."""
    return Bounds(bound for subject in subjects for bound in subject.bounds)


@dataclass(frozen=True, slots=True)
class Amounts:
    """What a turn books or has used. `micros` is money in millionths."""

    requests: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    micros: int = 0

    def by_metric(self, turns: int = 0) -> tuple[int, ...]:
        """How much of each of METRICS this is, with so many turns begun or, negative, ended."""
        tokens = self.input_tokens + self.output_tokens
        return self.requests, self.input_tokens, self.output_tokens, tokens, self.micros, turns

    def as_list(self) -> list[int]:
        """In the order of the fields, which is the order of the scripts."""
        return [self.requests, self.input_tokens, self.output_tokens, self.micros]

    def __add__(self, other: Amounts) -> Amounts:
        return Amounts(*map(add, self.as_list(), other.as_list()))

    def __sub__(self, other: Amounts) -> Amounts:
        return Amounts(*map(sub, self.as_list(), other.as_list()))

    def __bool__(self) -> bool:
        return bool(self.requests or self.input_tokens or self.output_tokens or self.micros)

    def within(self, most: Amounts) -> Amounts:
        """Of each as much as there is, from nothing to `most`."""
        return Amounts(*(max(0, min(pair)) for pair in zip(self.as_list(), most.as_list(), strict=True)))


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

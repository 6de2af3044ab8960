"""What is left of quotas, and who answers for whom, as headers."""

from __future__ import annotations

from router.model import Allowance, Degraded, Started
from router.transport.http.headers import degraded_headers, started_headers


def test_no_limit_no_header() -> None:
    """Nor before a turn has started."""
    assert started_headers(None) == started_headers(Started("m", "w", 1, 1)) == []


def test_the_tightest_limit_of_a_kind_is_told() -> None:
    """By OpenAI's name where it has one; what is overdrawn is nothing left."""
    allowances = (
        Allowance("tenant", "requests_per_minute", 100, 7),
        Allowance("user", "requests_per_minute", 10, 9),
        Allowance("key", "tokens_per_day", 50, -3),
        Allowance("model", "concurrent_turns", 4, 2),
    )
    assert dict(started_headers(Started("m", "w", 1, 1, "t", allowances))) == {
        b"x-ratelimit-limit-requests": b"100",
        b"x-ratelimit-remaining-requests": b"7",
        b"x-ratelimit-limit-tokens": b"50",
        b"x-ratelimit-remaining-tokens": b"0",
        b"x-ratelimit-limit-concurrent-turns": b"4",
        b"x-ratelimit-remaining-concurrent-turns": b"2",
    }


def test_a_downgrade_is_told() -> None:
    """With its reason; an answer of the model asked for has no such header."""
    assert degraded_headers(None) == []
    assert degraded_headers(Degraded("large", "a/small", "SATURATED")) == [(b"x-tidegate-degraded", b"SATURATED; from=large; to=a/small")]

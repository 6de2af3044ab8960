"""What responses tell in headers: what is left of the caller's quotas, by OpenAI's names, and that a smaller model answers."""

from __future__ import annotations

from collections.abc import Sequence

from router.model import Allowance, Degraded, Started

Headers = list[tuple[bytes, bytes]]

_DEGRADED = b"x-tidegate-degraded"

_NAMES = {
    "requests_per_minute": "requests",
    "input_tokens_per_minute": "input-tokens",
    "output_tokens_per_minute": "output-tokens",
    "tokens_per_day": "tokens",
}
"""OpenAI has names for requests and tokens only; other limits go by their own."""


def degraded_headers(degraded: Degraded | None) -> Headers:
    """`x-tidegate-degraded: SATURATED; from=large; to=small`; none when the model asked for answers."""
    if degraded is None:
        return []
    return [(_DEGRADED, f"{degraded.reason}; from={degraded.from_model}; to={degraded.to_model}".encode())]


def started_headers(started: Started | None) -> Headers:
    """What is left of the quotas of a turn that has begun, if one has."""
    return allowance_headers(started.allowances if started else ())


def allowance_headers(allowances: Sequence[Allowance]) -> Headers:
    """Limit and rest for each kind of limit; of several subjects the one that has the least left."""
    headers: Headers = []
    for name, allowance in _tightest(allowances).items():
        headers.append((f"x-ratelimit-limit-{name}".encode(), str(allowance.limit).encode()))
        headers.append((f"x-ratelimit-remaining-{name}".encode(), str(max(0, allowance.left)).encode()))
    return headers


def _tightest(allowances: Sequence[Allowance]) -> dict[str, Allowance]:
    tightest: dict[str, Allowance] = {}
    for it in sorted(allowances, key=lambda it: -it.left):
        tightest[_NAMES.get(it.name) or it.name.replace("_", "-")] = it
    return tightest

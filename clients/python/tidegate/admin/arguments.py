"""How subcommands and their arguments are described, and the forms that arguments have."""

from __future__ import annotations

import re
from argparse import ArgumentTypeError, Namespace
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any

from tidegate.admin.router import Router

_COUNT = re.compile(r"[0-9]{1,18}", re.ASCII)
_DURATION = re.compile(r"([0-9]{1,6})([smhdw])", re.ASCII)
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


@dataclass(frozen=True, slots=True)
class Argument:
    """An argument as argparse takes it."""

    names: tuple[str, ...]
    options: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Command:
    """A subcommand: `noun verb` or one word. Its help is the docstring of what it runs."""

    name: str
    run: Callable[[Router, Namespace], Awaitable[None]]
    arguments: Sequence[Argument] = ()


def argument(*names: str, **options: Any) -> Argument:
    """An argument from what `add_argument` takes."""
    return Argument(names, options)


def count(text: str) -> int:
    """A whole number from 0 on."""
    if not _COUNT.fullmatch(text):
        raise ArgumentTypeError(f"{text!r} is not a whole number from 0 on")
    return int(text)


def duration(text: str) -> timedelta:
    """`90s`, `15m`, `24h`, `7d` or `2w`."""
    match = _DURATION.fullmatch(text)
    if not match:
        raise ArgumentTypeError(f"{text!r} is not a duration like 90s, 15m, 24h, 7d or 2w")
    return timedelta(**{_UNITS[match[2]]: int(match[1])})


def day(text: str) -> date:
    """`2026-01-31`."""
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise ArgumentTypeError(f"{text!r} is not a day like 2026-01-31") from None


def moment(text: str) -> datetime:
    """A day, which begins at midnight UTC, or a day and a time."""
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise ArgumentTypeError(f"{text!r} is not a time like 2026-01-31 or 2026-01-31T12:00:00Z") from None
    return at if at.tzinfo else at.replace(tzinfo=UTC)


def expiry(text: str) -> datetime:
    """A moment, or a duration from now."""
    if not _DURATION.fullmatch(text):
        return moment(text)
    try:
        return datetime.now(UTC) + duration(text)
    except OverflowError:
        raise ArgumentTypeError(f"{text!r} is longer than time is counted") from None


def prefix(text: str) -> str:
    """The public part of a key, with or without `tg_` in front. Never the key."""
    name = text.removeprefix("tg_").rstrip("_")
    if "_" in name:
        raise ArgumentTypeError("this is a whole key, and arguments are seen by others; give its prefix, and revoke it")
    return name

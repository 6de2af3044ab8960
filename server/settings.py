"""Settings of other programs as data: what each may be, and what it is when nobody says."""

from __future__ import annotations

import argparse
import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

Value = bool | int | float | str
Reader = Callable[[str], Value]


class SettingInvalid(ValueError):
    """A setting that is unknown, out of range or does not go with another; the message names it."""

    reason = "SETTING_INVALID"


@dataclass(frozen=True, slots=True)
class Setting:
    """How a setting's text is read, and its value when none is given; None leaves it to the program."""

    read: Reader
    default: Value | None = None


def read_settings(table: Mapping[str, Setting], given: Mapping[str, str]) -> dict[str, Value]:
    """The given settings and the table's defaults. Raises SettingInvalid."""
    require_known(given, table)
    values = {name: setting.default for name, setting in table.items() if setting.default is not None}
    return values | {name: _read(name, table[name], text) for name, text in given.items()}


def require_known(given: Iterable[str], known: Iterable[str]) -> None:
    """Raises SettingInvalid for a name that is not known, with those that are."""
    unknown = sorted(set(given).difference(known))
    if unknown:
        raise SettingInvalid(f"unknown setting {unknown[0]!r}; known are {', '.join(sorted(known))}")


def _read(name: str, setting: Setting, text: str) -> Value:
    try:
        return setting.read(text)
    except ValueError as error:
        raise SettingInvalid(f"{name}: {error}") from None


def to_text(value: Value) -> str:
    """A value as command lines and config.pbtxt write it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def whole(low: int) -> Reader:
    """Whole numbers from `low` on."""

    def read(text: str) -> int:
        if not re.fullmatch(r"\d+", text, re.ASCII) or int(text) < low:
            raise ValueError(f"must be a whole number of at least {low}")
        return int(text)

    return read


def number(low: float, high: float) -> Reader:
    """Numbers from `low` to `high`."""

    def read(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not low <= value <= high:
            raise ValueError(f"must be a number from {low:g} to {high:g}")
        return value

    return read


def switch(text: str) -> bool:
    """TensorRT-LLM's spellings: true, True, TRUE or 1, and the like."""
    if text.lower() not in ("true", "1", "false", "0"):
        raise ValueError("must be true or false")
    return text.lower() in ("true", "1")


def one_of(*words: str) -> Reader:
    """One of these words."""

    def read(text: str) -> str:
        if text not in words:
            raise ValueError(f"must be one of {', '.join(words)}")
        return text

    return read


def matching(pattern: str, form: str) -> Reader:
    """Texts that match a regular expression; `form` shows what they look like."""

    def read(text: str) -> str:
        if not re.fullmatch(pattern, text, re.ASCII):
            raise ValueError(f"must look like {form}")
        return text

    return read


def name_and_value(text: str) -> tuple[str, str]:
    """Splits NAME=VALUE of a command line. Raises argparse.ArgumentTypeError."""
    name, separator, value = text.partition("=")
    if not separator:
        raise argparse.ArgumentTypeError("must be NAME=VALUE")
    return name, value


def path(text: str) -> str:
    """A file or folder on the machine that serves."""
    if not text.startswith("/"):
        raise ValueError("must be an absolute path")
    return text

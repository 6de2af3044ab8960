"""The parser of all our command lines: what is mistyped is named, with what was probably meant."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from typing import NoReturn

_WRONG = re.compile(r"unrecognized arguments: (?P<arguments>.*)|invalid choice: '(?P<choice>[^']*)'")


class Parser(argparse.ArgumentParser):
    """argparse's, and those of its subcommands are such too."""

    def error(self, message: str) -> NoReturn:
        """Tells the fault, and ends with 2."""
        wrong = _WRONG.search(message)
        words = (wrong["choice"] or wrong["arguments"] or "").split() if wrong else ()
        super().error(message + suggest((word.partition("=")[0] for word in words), _list_words(self)))


def suggest(words: Iterable[str], known: Iterable[str]) -> str:
    """`; did you mean X?` for the first of the words that is much like a known one; empty when none is."""
    there = list(known)
    near = next((near[0] for word in words if (near := get_close_matches(word, there, 1))), None)
    return f"; did you mean {near}?" if near else ""


def _list_words(parser: argparse.ArgumentParser) -> Iterator[str]:
    """Its options and choices, and those of its subcommands."""
    for action in parser._actions:
        yield from action.option_strings
        yield from map(str, action.choices or ())
        if isinstance(action, argparse._SubParsersAction):
            for each in action.choices.values():
                yield from _list_words(each)

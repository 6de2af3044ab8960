"""Prompts of a given length, made of words that are one token each in the usual vocabularies."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import accumulate

WORDS = (
    "about above across action again air all animal answer any area arm art ask away back ball bank base bed before begin best big black "
    "blue board boat body book born both box boy bring build business busy buy call came car care case cause center change child city "
    "class clear close cold color come common company control cost could country course cover cross cut day deep did different do done "
    "door down draw drive dry early earth east eat end energy enough even ever every example eye face fact family far farm fast father "
    "feel few field figure final find fine fire first fish five floor food foot force form found four free friend from front full game "
    "girl give glass go gold good great green ground group grow had half hand hard has head hear heart heat help here high hold home "
    "horse hot hour house how idea inch island job just keep kind king know land language large last late law lead learn leave left less "
    "letter life light like line list little live local long look love low made main make man many map mark matter may mean measure mind "
    "minute miss money month moon more morning most mother mountain move much music must name near need never new next night north note"
).split()


def make_text(tokens: int, draw: random.Random) -> str:
    """About `tokens` tokens of words; what a server counts stands in its usage."""
    return " ".join(draw.choices(WORDS, k=tokens))


def zipf_weights(count: int, exponent: float) -> list[float]:
    """Cumulative weights of `count` tenants, the k-th with 1 / k^exponent."""
    return list(accumulate((at + 1) ** -exponent for at in range(count)))


def pick_tenant(weights: Sequence[float], draw: random.Random) -> str:
    """A tenant's name by cumulative weights; tenant-1 is the busiest."""
    return f"tenant-{draw.choices(range(1, len(weights) + 1), cum_weights=weights)[0]}"

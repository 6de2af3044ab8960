"""Cascades: which of an alias's models, from small to flagship, a request begins with. Pure.

A predictor says how hard a request is, from 0 (any model will do) to 1 (take the best), and the range is divided equally among the models.
It sees the request only, so the choice costs no model any time, and the same request always gets the same model.

The default predictor is a logistic model of a few features of the request's text and form. **Its weights are a judgement, not a fit**: they
were set by hand so that what models of a hundred million parameters are known to fail at (arithmetic, code, translation, several steps,
forms, long answers) goes to the larger one, and chat and plain facts to the small one. It does not understand the question: a hard one in
plain short words looks easy, and the words it looks for are English. Put a predictor of your own in its place in app.py once you have
measured, on your own traffic, where the small model is not good enough.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Protocol, TypeVar

from router.model import Message, Role, TurnRequest
from router.text.tools import offer_tools

Item = TypeVar("Item")

_CHARS_PER_TOKEN = 4
_SEEN_CHARS = 1024
"""Of the last question, so much from its beginning and its end is searched: this runs on the event loop, for each turn."""


class Predictor(Protocol):
    """Says how hard requests are. Must be quick, and give the same for the same request."""

    def judge(self, request: TurnRequest) -> float:
        """From 0, easy, to 1, hard."""
        ...


WEIGHTS: Mapping[str, float] = {
    "bias": -2.0,
    "prompt": 0.6,  # for each doubling beyond 128 tokens, at about four characters each, of all but the system's messages
    "turns": 0.3,  # for each doubling of the user's messages; what was said before must be kept in mind
    "output": 0.2,  # for each doubling beyond 256 tokens that the caller allows explicitly
    "code": 2.5,  # code, or talk of it
    "maths": 2.5,  # formulas, sums, proofs
    "task": 2.5,  # translating, comparing, explaining why, several steps
    "guide": 1.0,  # an answer that must have a form
    "tools": 2.5,  # an answer that may call tools
}
"""Of the default predictor; at a sum of 0 a request is as likely hard as easy."""

_WORDS = {
    "code": "bash c++ code compile debug java javascript python refactor regex rust script sql traceback typescript",
    "maths": "calculate compute derivative equation equations integral integrals percent probability proof prove solve",
    "task": "analyse analyze compare contrast critique steps trade-off translate translation",
}
_WORD_SETS = {name: frozenset(words.split()) for name, words in _WORDS.items()}
_WORD = re.compile(r"[a-z][a-z+-]*")
_SIGNS = {
    "code": re.compile(r"```|=>|\);|#include|</\w|\bdef \w+\(|\bselect\s.{1,80}\sfrom\s"),
    "maths": re.compile(r"\d ?[-+*/^×÷=] ?\d|\^\d|\\frac|\\int|\\sum|\\sqrt|\bhow m(?:any|uch)\b"),
    "task": re.compile(r"\bstep by step\b|\bexplain why\b"),
}
"""Both are looked for in lower case."""


class FeaturePredictor:
    """The default predictor."""

    def __init__(self, weights: Mapping[str, float] = WEIGHTS) -> None:
        self._weights = weights

    def judge(self, request: TurnRequest) -> float:
        """See Predictor."""
        logit = self._weights["bias"] + sum(self._weights[name] * value for name, value in read_features(request).items())
        return 1 / (1 + math.exp(-logit))


def read_features(request: TurnRequest) -> dict[str, float]:
    """The features that WEIGHTS weighs; none is negative."""
    said = [message for message in request.messages if message.role is not Role.SYSTEM]
    asked = [message.content or "" for message in said if message.role is Role.USER]
    return {
        "prompt": _doublings(sum(map(_count_chars, said)) / _CHARS_PER_TOKEN, 128),
        "turns": _doublings(len(asked), 1),
        "output": _doublings(request.max_output_tokens or 0, 256),
        **_read_text(_cut(asked[-1]) if asked else ""),
        "guide": float(request.guide is not None),
        "tools": float(offer_tools(request) is not None),
    }


def order_models(models: Sequence[Item], hardness: float) -> Sequence[Item]:
    """The models to try for a request, best first: the one for its hardness, then those above it. `models` go from small to flagship."""
    return models[min(int(hardness * len(models)), len(models) - 1) :]


def _read_text(text: str) -> dict[str, float]:
    lower = text.lower()
    words = frozenset(_WORD.findall(lower))
    return {name: float(bool(_WORD_SETS[name] & words or sign.search(lower))) for name, sign in _SIGNS.items()}


def _doublings(value: float, base: float) -> float:
    return math.log2(value / base) if value > base else 0.0


def _cut(text: str) -> str:
    return text if len(text) <= 2 * _SEEN_CHARS else f"{text[:_SEEN_CHARS]}\n{text[-_SEEN_CHARS:]}"


def _count_chars(message: Message) -> int:
    return len(message.content or "")

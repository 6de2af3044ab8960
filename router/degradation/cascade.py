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
from router.tools import ToolMode

Item = TypeVar("Item")

_CHARS_PER_TOKEN = 4
_SEEN_CHARS = 4096
"""Of the last question, so much from its beginning and its end is searched: this runs on the event loop, for each turn."""


class Predictor(Protocol):
    """Says how hard requests are. Must be quick, and give the same for the same request."""

    def judge(self, request: TurnRequest) -> float:
        """From 0, easy, to 1, hard. The request may hold anything that a caller can send: it has not been checked yet."""
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

_MARKERS = {
    "code": re.compile(
        r"```|\bdef \w+\(|\bclass \w+[:({]|#include\b|\bimport \w+|=>|\);|\bselect\b[^\n]{1,80}\bfrom\b|traceback|stack trace|\bregex\b"
        r"|\b(?:python|javascript|typescript|java|rust|golang|c\+\+|sql|bash)\b|\b(?:code|function|compile|debug|refactor|unit tests?)\b",
        re.IGNORECASE,
    ),
    "maths": re.compile(
        r"\d\s*[-+*/^×÷]\s*\d|\\(?:frac|int|sum|sqrt)\b|\d\s*%\s+of\b"
        r"|\b(?:solve|prove|proof|equations?|integrals?|derivatives?|probability|calculate|compute|how many|how much)\b",
        re.IGNORECASE,
    ),
    "task": re.compile(
        r"\b(?:translat\w+|step[ -]by[ -]step|explain why|compare|contrast|analy[sz]e|critique|trade-?offs?|pros and cons)\b",
        re.IGNORECASE,
    ),
}


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
    text = _cut(asked[-1]) if asked else ""
    return {
        "prompt": _doublings(sum(map(_count_chars, said)) / _CHARS_PER_TOKEN, 128),
        "turns": _doublings(len(asked), 1),
        "output": _doublings(request.max_output_tokens or 0, 256),
        **{name: float(bool(pattern.search(text))) for name, pattern in _MARKERS.items()},
        "guide": float(request.guide is not None),
        "tools": float(bool(request.tools) and request.tool_choice.mode is not ToolMode.NONE),
    }


def order_models(models: Sequence[Item], hardness: float) -> Sequence[Item]:
    """The models to try for a request, best first: the one for its hardness, then those above it. `models` go from small to flagship."""
    return models[min(int(hardness * len(models)), len(models) - 1) :]


def _doublings(value: float, base: float) -> float:
    return math.log2(value / base) if value > base else 0.0


def _cut(text: str) -> str:
    return text if len(text) <= 2 * _SEEN_CHARS else f"{text[:_SEEN_CHARS]}\n{text[-_SEEN_CHARS:]}"


def _count_chars(message: Message) -> int:
    return len(message.content or "")

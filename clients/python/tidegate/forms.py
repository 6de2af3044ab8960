"""The form of an answer: free text, or JSON of a type that the caller names."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from tidegate.errors import output_incomplete, output_invalid
from tidegate.shapes import Shape, ShapeWrong, shape_of, write_schema
from tidegate.v1.event_pb2 import FINISH_REASON_STOP, FinishReason
from tidegate.v1.turn_pb2 import ResponseFormat

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class Form(Protocol[T_co]):
    """What an answer is made into."""

    @property
    def response_format(self) -> ResponseFormat | None:
        """What the router holds the model to."""

    def read(self, text: str, finish: FinishReason) -> T_co:
        """The answer's value. Raises OutputInvalid."""


@dataclass(frozen=True, slots=True)
class PlainText:
    """The answer is its text."""

    response_format: ResponseFormat | None = None

    def read(self, text: str, finish: FinishReason) -> str:
        return text


@dataclass(frozen=True, slots=True)
class TypedJson(Generic[T]):
    """The answer is a value of a type."""

    shape: Shape
    response_format: ResponseFormat | None

    def read(self, text: str, finish: FinishReason) -> T:
        if finish != FINISH_REASON_STOP:
            raise output_incomplete(FinishReason.Name(finish))
        try:
            value: T = self.shape.read(json.loads(text), "answer")
        except json.JSONDecodeError as fault:
            raise output_invalid(f"no JSON at character {fault.pos}") from None
        except ShapeWrong as fault:
            raise output_invalid(str(fault)) from fault
        return value


def choose_form(into: Any) -> Form[Any]:
    """The form for what a caller wants the answer to become; None is its text. Raises TypeError for what JSON cannot hold."""
    if into is None:
        return PlainText()
    shape = shape_of(into)
    return TypedJson(shape, ResponseFormat(json_schema=json.dumps(write_schema(shape))))

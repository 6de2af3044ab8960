"""Python's types as JSON schemas, and JSON as values of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Annotated, Any, Literal, NotRequired, TypedDict

import pytest
from pydantic import BaseModel
from tidegate.shapes import ShapeWrong, shape_of, write_schema


class Mood(Enum):
    GOOD = "good"
    BAD = "bad"


@dataclass
class Pet:
    name: str
    age: int = 0


@dataclass
class Owner:
    name: Annotated[str, "first and last name"]
    pets: list[Pet]
    mood: Mood = Mood.GOOD
    friends: list[Owner] = field(default_factory=list)


class Place(TypedDict):
    city: str
    street: NotRequired[str]


class Inner(BaseModel):
    size: int


class Outer(BaseModel):
    inner: Inner


@dataclass
class Box:
    content: Outer


PET = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
    "required": ["name"],
    "additionalProperties": False,
}

SCHEMAS: dict[str, tuple[Any, dict[str, Any]]] = {
    "text": (str, {"type": "string"}),
    "nothing": (None, {"type": "null"}),
    "anything": (Any, {}),
    "list": (list[int], {"type": "array", "items": {"type": "integer"}}),
    "tuple": (tuple[bool, ...], {"type": "array", "items": {"type": "boolean"}}),
    "bare list": (list, {"type": "array", "items": {}}),
    "table": (dict[str, float], {"type": "object", "additionalProperties": {"type": "number"}}),
    "constants": (Literal["a", 1], {"enum": ["a", 1]}),
    "enum": (Mood, {"enum": ["good", "bad"]}),
    "union": (int | None, {"anyOf": [{"type": "integer"}, {"type": "null"}]}),
    "words": (Annotated[int, "in years"], {"type": "integer", "description": "in years"}),
    "dataclass": (Pet, PET),
    "dataclasses": (list[Pet], {"type": "array", "items": {"$ref": "#/$defs/Pet"}, "$defs": {"Pet": PET}}),
}


@pytest.mark.parametrize("name", SCHEMAS)
def test_a_type_has_a_schema(name: str) -> None:
    """Records refer to each other by name, so that they may hold themselves."""
    hint, schema = SCHEMAS[name]
    assert write_schema(shape_of(hint)) == schema


def test_a_record_may_hold_itself() -> None:
    """Its schema refers to itself, and its values are read to any depth."""
    schema = write_schema(shape_of(Owner))
    assert schema["properties"]["friends"]["items"] == {"$ref": "#/$defs/Owner"}
    assert schema["properties"]["name"] == {"type": "string", "description": "first and last name"}
    assert set(schema["$defs"]) == {"Owner", "Pet"}
    friend = {"name": "B", "pets": [], "mood": "bad"}
    value = shape_of(Owner).read({"name": "A", "pets": [{"name": "Rex"}], "friends": [friend]}, "answer")
    assert value == Owner("A", [Pet("Rex")], friends=[Owner("B", [], Mood.BAD)])


def test_a_pydantic_model_speaks_for_itself() -> None:
    """Alone and inside a dataclass; what its schema refers to is found at the root."""
    schema = write_schema(shape_of(Box))
    assert schema["properties"]["content"]["properties"]["inner"] == {"$ref": "#/$defs/Inner"}
    assert "Inner" in schema["$defs"]
    assert shape_of(Box).read({"content": {"inner": {"size": 3}}}, "answer") == Box(Outer(inner=Inner(size=3)))
    with pytest.raises(ShapeWrong, match=r"^answer\.content: is no Outer$"):
        shape_of(Box).read({"content": {"inner": {"size": "large"}}}, "answer")


def test_typed_dicts_may_leave_fields_out() -> None:
    """Those that they say."""
    assert write_schema(shape_of(Place))["required"] == ["city"]
    assert shape_of(Place).read({"city": "Paris"}, "answer") == {"city": "Paris"}


READ: dict[str, tuple[Any, Any, Any]] = {
    "whole number as float": (float, 3, 3.0),
    "second of a union": (int | str, "a", "a"),
    "set": (set[int], [1, 1, 2], {1, 2}),
    "table": (dict[str, Pet], {"a": {"name": "Rex", "age": 2}}, {"a": Pet("Rex", 2)}),
    "anything": (Any, {"a": [1]}, {"a": [1]}),
}


@pytest.mark.parametrize("name", READ)
def test_json_is_read_as_the_type(name: str) -> None:
    """Of containers too."""
    hint, json, value = READ[name]
    read = shape_of(hint).read(json, "answer")
    assert read == value
    assert type(read) is type(value)


WRONG: dict[str, tuple[Any, Any, str]] = {
    "text for a number": (int, "secret", "answer: must be of type integer"),
    "truth for a number": (int, True, "answer: must be of type integer"),
    "fraction for a whole number": (int, 1.5, "answer: must be of type integer"),
    "null for a text": (str, None, "answer: must be of type string"),
    "deep inside": (list[Pet], [{"name": "a"}, {"name": 1}], "answer[1].name: must be of type string"),
    "missing": (Pet, {}, "answer.name: is missing"),
    "too much": (Pet, {"name": "a", "secret": 1}, "answer: has 1 fields that it must not have"),
    "no object": (Pet, [], "answer: must be an object"),
    "no array": (list[int], {}, "answer: must be an array"),
    "no table": (dict[str, int], 1, "answer: must be an object"),
    "other constant": (Literal["a"], "secret", "answer: must be one of ['a']"),
    "true is no 1": (Literal[1], True, "answer: must be one of [1]"),
    "no option": (int | None, "secret", "answer: must be of type integer or answer: must be of type null"),
}


@pytest.mark.parametrize("name", WRONG)
def test_json_of_another_type_is_refused(name: str) -> None:
    """With the place and what would be right, and without the value."""
    hint, json, words = WRONG[name]
    with pytest.raises(ShapeWrong) as caught:
        shape_of(hint).read(json, "answer")
    assert str(caught.value) == words


def test_what_json_cannot_hold_is_no_shape() -> None:
    """It is a mistake of the program, told before anything is asked."""
    with pytest.raises(TypeError, match="JSON has no form"):
        shape_of(bytes)

"""Python's types as JSON: the schema that a model is held to, and the way back from its JSON to a value.

Known are str, int, float, bool, None, Any, lists, tuples of one type, dicts with str keys, Literal, Enum, unions, dataclasses, TypedDicts,
`Annotated[T, "what it is"]`, and pydantic's models, which say both themselves, so that pydantic is needed only by those who use it.
"""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Annotated, Any, Literal, NotRequired, Protocol, Required, Union, cast, get_args, get_origin, get_type_hints, is_typeddict

Json = dict[str, Any]


class ShapeWrong(ValueError):
    """A value is not of its type; the message names the place and what would be right, and does not hold the value."""


class Shape(Protocol):
    """A type, as JSON has it."""

    def schema(self, definitions: Json) -> Json:
        """Its JSON schema; what that refers to is put into `definitions`."""

    def read(self, value: Any, place: str) -> Any:
        """The value that JSON stands for. Raises ShapeWrong."""


def write_schema(shape: Shape) -> Json:
    """A whole schema, with what it refers to."""
    definitions: Json = {}
    schema = shape.body(definitions) if isinstance(shape, Record) else shape.schema(definitions)
    return {**schema, "$defs": definitions} if definitions else schema


def shape_of(hint: Any) -> Shape:
    """The shape of a type. Raises TypeError for one that JSON cannot hold."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return Described(shape_of(arguments[0]), next((text for text in arguments[1:] if isinstance(text, str)), ""))
    if origin in (Required, NotRequired):
        return shape_of(arguments[0])
    if hint is Any or hint is object:
        return Anything()
    if hint in _SCALARS:
        return Scalar(type(None) if hint is None else hint)
    return _shape_of_container(origin or hint, arguments) or _shape_of_class(hint)


def _shape_of_container(origin: Any, arguments: tuple[Any, ...]) -> Shape | None:
    if origin is Literal:
        return Choice({value: value for value in arguments})
    if origin in (Union, types.UnionType):
        return OneOf([shape_of(option) for option in arguments])
    if origin in _ARRAYS:
        return Array(arguments[0] if arguments else Any, _ARRAYS[origin])
    if origin in _MAPPINGS:
        return Table(arguments[1] if arguments else Any)
    return None


def _shape_of_class(kind: Any) -> Shape:
    if hasattr(kind, "model_json_schema") and hasattr(kind, "model_validate"):
        return Foreign(kind)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return Choice({member.value: member for member in kind})
    if dataclasses.is_dataclass(kind):
        return Record(_name(kind), _hints(kind), _needed_fields(kind), cast(Callable[..., Any], kind))
    if is_typeddict(kind):
        return Record(_name(kind), _hints(kind), _needed_keys(kind), dict)
    raise TypeError(f"JSON has no form for {kind!r}")


def _hints(kind: Any) -> dict[str, Any]:
    return get_type_hints(kind, include_extras=True)


def _name(kind: Any) -> str:
    return str(kind.__name__)


def _needed_fields(kind: Any) -> list[str]:
    missing = dataclasses.MISSING
    return [field.name for field in dataclasses.fields(kind) if field.default is missing and field.default_factory is missing]


def _needed_keys(kind: Any) -> list[str]:
    """The class itself overlooks NotRequired in annotations that are not evaluated."""
    origins = {name: get_origin(hint) for name, hint in _hints(kind).items()}
    return [
        name for name, origin in origins.items() if origin is Required or (origin is not NotRequired and name in kind.__required_keys__)
    ]


@dataclass(frozen=True, slots=True)
class Anything:
    """Any JSON."""

    def schema(self, definitions: Json) -> Json:
        return {}

    def read(self, value: Any, place: str) -> Any:
        return value


@dataclass(frozen=True, slots=True)
class Scalar:
    """A text, number, truth or null."""

    kind: Any

    def schema(self, definitions: Json) -> Json:
        return {"type": _SCALARS[self.kind]}

    def read(self, value: Any, place: str) -> Any:
        if self.kind is float and type(value) is int:
            return float(value)
        if type(value) is self.kind:
            return value
        raise ShapeWrong(f"{place}: must be of type {_SCALARS[self.kind]}")


@dataclass(frozen=True, slots=True)
class Choice:
    """One of some constants; what each stands for."""

    values: Mapping[Any, Any]

    def schema(self, definitions: Json) -> Json:
        return {"enum": list(self.values)}

    def read(self, value: Any, place: str) -> Any:
        for constant, meaning in self.values.items():
            if type(constant) is type(value) and constant == value:
                return meaning
        raise ShapeWrong(f"{place}: must be one of {list(self.values)}")


@dataclass(frozen=True, slots=True)
class OneOf:
    """A union: the first type that fits."""

    options: Sequence[Shape]

    def schema(self, definitions: Json) -> Json:
        return {"anyOf": [option.schema(definitions) for option in self.options]}

    def read(self, value: Any, place: str) -> Any:
        faults = []
        for option in self.options:
            try:
                return option.read(value, place)
            except ShapeWrong as fault:
                faults.append(str(fault))
        raise ShapeWrong(" or ".join(faults))


@dataclass(frozen=True, slots=True)
class Array:
    """Any number of items of one type."""

    item: Any
    make: Callable[[Iterable[Any]], Any]

    def schema(self, definitions: Json) -> Json:
        return {"type": "array", "items": shape_of(self.item).schema(definitions)}

    def read(self, value: Any, place: str) -> Any:
        if not isinstance(value, list):
            raise ShapeWrong(f"{place}: must be an array")
        item = shape_of(self.item)
        return self.make(item.read(one, f"{place}[{at}]") for at, one in enumerate(value))


@dataclass(frozen=True, slots=True)
class Table:
    """Any names, and values of one type."""

    value: Any

    def schema(self, definitions: Json) -> Json:
        return {"type": "object", "additionalProperties": shape_of(self.value).schema(definitions)}

    def read(self, value: Any, place: str) -> Any:
        if not isinstance(value, dict):
            raise ShapeWrong(f"{place}: must be an object")
        shape = shape_of(self.value)
        return {name: shape.read(one, f"{place}.{name}") for name, one in value.items()}


@dataclass(frozen=True, slots=True)
class Record:
    """Named fields, each with its type; fields are resolved when they are needed, so that a record may hold itself."""

    name: str
    hints: Mapping[str, Any]
    needed: Sequence[str]
    make: Callable[..., Any]

    def schema(self, definitions: Json) -> Json:
        if self.name not in definitions:
            definitions[self.name] = {}  # stands for itself while its fields are described
            definitions[self.name] = self.body(definitions)
        return {"$ref": f"#/$defs/{self.name}"}

    def body(self, definitions: Json) -> Json:
        """Its own schema, where `schema` refers to it."""
        fields = {name: shape_of(hint).schema(definitions) for name, hint in self.hints.items()}
        return {"type": "object", "properties": fields, "required": list(self.needed), "additionalProperties": False}

    def read(self, value: Any, place: str) -> Any:
        if not isinstance(value, dict):
            raise ShapeWrong(f"{place}: must be an object")
        if strange := [name for name in value if name not in self.hints]:
            raise ShapeWrong(f"{place}: has {len(strange)} fields that it must not have")
        if missing := [name for name in self.needed if name not in value]:
            raise ShapeWrong(f"{place}.{missing[0]}: is missing")
        return self.make(**{name: shape_of(self.hints[name]).read(one, f"{place}.{name}") for name, one in value.items()})


@dataclass(frozen=True, slots=True)
class Described:
    """A type with words about what it is for."""

    shape: Shape
    text: str

    def schema(self, definitions: Json) -> Json:
        return {**self.shape.schema(definitions), "description": self.text}

    def read(self, value: Any, place: str) -> Any:
        return self.shape.read(value, place)


@dataclass(frozen=True, slots=True)
class Foreign:
    """A model of pydantic's, or of another library with its methods."""

    kind: Any

    def schema(self, definitions: Json) -> Json:
        schema = self.kind.model_json_schema()
        definitions.update(schema.pop("$defs", {}))
        return dict(schema)

    def read(self, value: Any, place: str) -> Any:
        try:
            return self.kind.model_validate(value)
        except ValueError as fault:
            raise ShapeWrong(f"{place}: is no {self.kind.__name__}") from fault


_SCALARS: dict[Any, str] = {str: "string", int: "integer", float: "number", bool: "boolean", type(None): "null", None: "null"}
_ARRAYS: dict[Any, Callable[[Iterable[Any]], Any]] = {
    list: list,
    tuple: tuple,
    set: set,
    frozenset: frozenset,
    Sequence: list,
    Iterable: list,
}
_MAPPINGS = (dict, Mapping)

"""Whether the options of a `oneOf` exclude each other.

An answer is written by one option; `oneOf` also wants that it is none of the others, and a grammar cannot take back. So options must differ
in a way that shows: in type, in their `enum` or `const` values, or in those of a property that both require (a discriminator).
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations
from typing import TypeAlias

from server.guides.json_keywords import Schema, find_deciding, read_properties, read_types, read_values, type_of
from server.guides.json_text import Json, identify
from server.guides.limits import MAX_ONE_OF
from server.guides.refusal import refuse

Resolve: TypeAlias = Callable[[Json], Json]
"""Follows a schema that is but a reference."""

_ALL_TYPES = {"object", "array", "string", "number", "boolean", "null"}


def check_exclusive(options: list[Json], resolve: Resolve, place: str) -> None:
    """Raises RequestRefused unless no two options can allow the same value."""
    if len(options) > MAX_ONE_OF:
        raise refuse(place, f"more than {MAX_ONE_OF} options")
    for (first, one), (second, other) in combinations(enumerate(map(resolve, options)), 2):
        if _overlap(one, other, resolve):
            raise refuse(place, f"options {first} and {second} may both allow a value; if that does not matter, use anyOf")


def _overlap(one: Json, other: Json, resolve: Resolve) -> bool:
    if not isinstance(one, dict) or not isinstance(other, dict):
        return True
    values, others = _values(one), _values(other)
    if values is not None and others is not None:
        return bool(values & others)
    common = _types(one) & _types(other)
    return common != set() and not (common == {"object"} and _discriminated(one, other, resolve))


def _values(schema: Schema) -> set[str] | None:
    return {identify(value) for value in read_values(schema, "")} if {"enum", "const"} & schema.keys() else None


def _types(schema: Schema) -> set[str]:
    deciding = find_deciding(schema, "")
    if deciding in ("enum", "const"):
        names = [type_of(value) for value in read_values(schema, "")]
    else:
        names = [] if deciding else read_types(schema, "")
    return {"number" if name == "integer" else name for name in names} or _ALL_TYPES


def _discriminated(one: Schema, other: Schema, resolve: Resolve) -> bool:
    """Whether a property that both require has no value in common."""
    if find_deciding(one, "") or find_deciding(other, ""):
        return False
    (properties, required), (other_properties, other_required) = read_properties(one, ""), read_properties(other, "")
    for name in required & other_required:
        tag, other_tag = resolve(properties[name]), resolve(other_properties[name])
        if isinstance(tag, dict) and isinstance(other_tag, dict):
            values, others = _values(tag), _values(other_tag)
            if values is not None and others is not None and not values & others:
                return True
    return False

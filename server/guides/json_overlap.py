"""Whether the options of a `oneOf` exclude each other.

An answer is written by one option; `oneOf` also wants that it is none of the others, and a grammar cannot take back. So options must differ
in a way that shows: in type, in their `enum` or `const` values, or in those of a property that both require (a discriminator).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import combinations
from typing import TypeAlias

from server.guides.json_keywords import Schema, find_deciding, read_properties, read_types, read_values, type_of
from server.guides.json_text import Json, identify
from server.guides.limits import MAX_ONE_OF
from server.guides.refusal import refuse

Resolve: TypeAlias = Callable[[Json], Json]
"""Follows a schema that is but a reference."""

_ALL_TYPES = frozenset(("object", "array", "string", "number", "boolean", "null"))


def check_exclusive(options: list[Json], resolve: Resolve, place: str) -> None:
    """Raises RequestRefused unless no two options can allow the same value."""
    if len(options) > MAX_ONE_OF:
        raise refuse(place, f"more than {MAX_ONE_OF} options")
    traits = [_read_traits(resolve(option), resolve, f"{place}/{number}") for number, option in enumerate(options)]
    for (first, one), (second, other) in combinations(enumerate(traits), 2):
        if not one.excludes(other):
            raise refuse(place, f"options {first} and {second} may both allow a value; if that does not matter, use anyOf")


@dataclass(frozen=True, slots=True)
class _Traits:
    """What an option shows: the types of its values, the values themselves if they are listed, and those of properties it requires."""

    types: frozenset[str] = _ALL_TYPES
    values: frozenset[str] | None = None
    tags: dict[str, frozenset[str]] = field(default_factory=dict)

    def excludes(self, other: _Traits) -> bool:
        """Whether no value can be of both."""
        if self.values is not None and other.values is not None:
            return not self.values & other.values
        common = self.types & other.types
        tagged = any(not self.tags[name] & other.tags[name] for name in self.tags.keys() & other.tags.keys())
        return not common or (common == {"object"} and tagged)


def _read_traits(schema: Json, resolve: Resolve, place: str) -> _Traits:
    if not isinstance(schema, dict):
        return _Traits()
    deciding = find_deciding(schema, place)
    if deciding in ("enum", "const"):
        values = read_values(schema, place)
        return _Traits(_as_types(map(type_of, values)), frozenset(map(identify, values)))
    types = _as_types(read_types(schema, place)) if not deciding else frozenset[str]()
    return _Traits(types or _ALL_TYPES, tags=_read_tags(schema, resolve, place) if types == {"object"} else {})


def _as_types(names: Iterable[str]) -> frozenset[str]:
    return frozenset("number" if name == "integer" else name for name in names)


def _read_tags(schema: Schema, resolve: Resolve, place: str) -> dict[str, frozenset[str]]:
    properties, required = read_properties(schema, place)
    tags: dict[str, frozenset[str]] = {}
    for name in required:
        tag = resolve(properties[name])
        if isinstance(tag, dict) and find_deciding(tag, place) in ("enum", "const"):
            tags[name] = frozenset(map(identify, read_values(tag, place)))
    return tags

"""A schema's keywords: which ones there are, and reading their values with a refusal for what they may not be."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from typing import TypeAlias

from server.guides.json_text import Json, identify
from server.guides.limits import MAX_COUNT, MAX_ELEMENTS
from server.guides.refusal import refuse, show_name

Schema: TypeAlias = dict[str, Json]

MAX_DECIMALS = 6
_TYPES = ("object", "array", "string", "number", "integer", "boolean", "null")
_DECIDING = ("$ref", "allOf", "anyOf", "oneOf", "enum", "const")
_VALUES = {"enum", "const", "type"}
_OF_TYPE = {
    "object": {"properties", "required", "additionalProperties"},
    "array": {"items", "prefixItems", "minItems", "maxItems"},
    "string": {"minLength", "maxLength", "pattern", "format"},
    "number": {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"},
}
_NO_EFFECT = set(
    "title description default examples example deprecated readOnly writeOnly discriminator $schema $comment $defs definitions".split()
)
_KNOWN = _NO_EFFECT.union(_DECIDING, ("type",), *_OF_TYPE.values())


def find_deciding(schema: Schema, place: str) -> str:
    """The keyword that says all by itself, such as `anyOf`; empty if the type does. Refuses what is unknown or cannot be combined."""
    known = _KNOWN | {"$id"} if place == "#" else _KNOWN
    for name in schema:
        if name not in known:
            raise refuse(place, f'"{show_name(name)}" is not supported')
    deciding = [name for name in _DECIDING if name in schema]
    if not deciding:
        return ""
    beside = set(schema) - _NO_EFFECT - {"$id"} - (_VALUES if deciding[0] in _VALUES else {deciding[0]})
    if beside:
        raise refuse(place, f'"{deciding[0]}" cannot be combined with "{min(beside)}"')
    return deciding[0]


def read_types(schema: Schema, place: str) -> list[str]:
    """The types it allows, from `type` or else the one that its keywords belong to; none means any."""
    given = schema.get("type")
    if given is None:
        families = [family for family, names in _OF_TYPE.items() if names & schema.keys()]
        if len(families) > 1:
            raise refuse(place, 'has keywords of several types and no "type"')
        return families
    types = given if isinstance(given, list) else [given]
    names = [name for name in types if isinstance(name, str) and name in _TYPES]
    if not names or len(names) < len(types):
        raise refuse(f"{place}/type", f"must be one or more of {', '.join(_TYPES)}")
    return names


def read_values(schema: Schema, place: str) -> list[Json]:
    """What `enum`, `const` and `type` together leave, each value once."""
    values = schema.get("enum", [schema.get("const")])
    if not isinstance(values, list) or len(values) > MAX_ELEMENTS:
        raise refuse(f"{place}/enum", f"must be a list of at most {MAX_ELEMENTS} values")
    types = read_types(schema, place)
    kept = {identify(value): value for value in values if not types or _has_type(value, types)}
    if "const" in schema:
        wanted = identify(schema["const"])
        kept = {text: value for text, value in kept.items() if text == wanted}
    if not kept:
        raise refuse(place, "no value is allowed")
    return list(kept.values())


def _has_type(value: Json, types: list[str]) -> bool:
    name = type_of(value)
    return name in types or (name == "integer" and "number" in types)


def type_of(value: Json) -> str:
    """The JSON type of a value: `integer` for one that is written without a fraction."""
    for kind, name in ((dict, "object"), (list, "array"), (str, "string"), (bool, "boolean"), (int, "integer"), (float, "number")):
        if isinstance(value, kind):
            return name
    return "null"


def read_list(schema: Schema, name: str, place: str) -> list[Json]:
    """A keyword's list, which must not be empty."""
    values = schema[name]
    if not isinstance(values, list) or not values:
        raise refuse(f"{place}/{name}", "must be a list that is not empty")
    return values


def read_text(schema: Schema, name: str, place: str) -> str:
    """A keyword's string."""
    value = schema[name]
    if not isinstance(value, str):
        raise refuse(f"{place}/{name}", "must be a string")
    return value


def read_count(schema: Schema, name: str, place: str) -> int | None:
    """How many items or characters, if the keyword is there."""
    value = schema.get(name)
    if value is None and name not in schema:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= MAX_COUNT:
        raise refuse(f"{place}/{name}", f"must be a whole number from 0 to {MAX_COUNT}")
    return value


def read_counts(schema: Schema, least: str, most: str, place: str) -> tuple[int, int | None]:
    """Two such keywords as bounds."""
    low, high = read_count(schema, least, place) or 0, read_count(schema, most, place)
    if high is not None and low > high:
        raise refuse(place, f'"{least}" is above "{most}"')
    return low, high


def read_properties(schema: Schema, place: str) -> tuple[Schema, set[str]]:
    """Each property's schema by name, and which ones are required."""
    properties, required = schema.get("properties", {}), schema.get("required", [])
    if not isinstance(properties, dict):
        raise refuse(f"{place}/properties", "must be an object")
    if not isinstance(required, list):
        raise refuse(f"{place}/required", "must be a list")
    for name in required:
        if not isinstance(name, str) or name not in properties:
            raise refuse(f"{place}/required", f'"{show_name(str(name))}" is not among the properties')
    return properties, {name for name in required if isinstance(name, str)}


def read_bounds(schema: Schema, place: str) -> tuple[Fraction | None, Fraction | None, int]:
    """The least and the greatest number, and the most decimals that a bound has.

    A bound that is itself excluded is moved by less than the smallest step between numbers of `MAX_DECIMALS` decimals.
    """
    step = Fraction(1, 10 ** (MAX_DECIMALS + 1))
    lows = [(_read_bound(schema, name, place), move) for name, move in (("minimum", 0), ("exclusiveMinimum", step)) if name in schema]
    highs = [(_read_bound(schema, name, place), move) for name, move in (("maximum", 0), ("exclusiveMaximum", step)) if name in schema]
    decimals = max((_count_decimals(bound) for bound, _ in lows + highs), default=0)
    low = max((Fraction(bound) + move for bound, move in lows), default=None)
    return low, min((Fraction(bound) - move for bound, move in highs), default=None), decimals


def _read_bound(schema: Schema, name: str, place: str) -> Decimal:
    value = schema[name]
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise refuse(f"{place}/{name}", "must be a number")
    bound = Decimal(repr(value))
    if _count_decimals(bound) > MAX_DECIMALS:
        raise refuse(f"{place}/{name}", f"must have at most {MAX_DECIMALS} decimals")
    return bound


def _count_decimals(bound: Decimal) -> int:
    exponent = bound.normalize().as_tuple().exponent
    return max(0, -exponent) if isinstance(exponent, int) else 0

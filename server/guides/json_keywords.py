"""A schema's keywords: which ones there are, and reading their values with a refusal for what they may not be."""

from __future__ import annotations

from fractions import Fraction
from typing import TypeAlias

from server.guides.json_numbers import BOUND_DECIMALS
from server.guides.json_text import Json, identify
from server.guides.limits import MAX_COUNT, MAX_ELEMENTS
from server.guides.refusal import refuse, show_name

Schema: TypeAlias = dict[str, Json]

TYPES = ("object", "array", "string", "number", "integer", "boolean", "null")
HOLDING = ("$ref", "allOf", "anyOf", "oneOf")
"""Those that hold schemas."""
_DECIDING = (*HOLDING, "enum", "const")
_VALUES = {"enum", "const", "type"}
_OF_TYPE = {
    "object": {"properties", "required", "additionalProperties", "patternProperties", "propertyNames"},
    "array": {"items", "prefixItems", "additionalItems", "minItems", "maxItems"},
    "string": {"minLength", "maxLength", "pattern", "format"},
    "number": {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"},
}
_NO_EFFECT = set(
    "title description default examples example deprecated readOnly writeOnly discriminator $schema $comment $defs definitions".split()
)
_KNOWN = _NO_EFFECT.union(_DECIDING, ("type",), *_OF_TYPE.values())


def find_deciding(schema: Schema, place: str) -> str:
    """The keyword that says all by itself, such as `anyOf`; empty if the type does. Refuses what is unknown or cannot be combined.

    A `type` may stand beside one that holds schemas, where these allow no other.
    """
    known = _KNOWN | {"$id"} if place == "#" else _KNOWN
    for name in schema:
        if name not in known:
            raise refuse(place, f'"{show_name(name)}" is not supported')
    deciding = [name for name in _DECIDING if name in schema]
    if not deciding:
        return ""
    beside = set(schema) - _NO_EFFECT - {"$id"} - (_VALUES if deciding[0] in _VALUES else {deciding[0], "type"})
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
    names = [name for name in types if isinstance(name, str) and name in TYPES]
    if not names or len(names) < len(types):
        raise refuse(f"{place}/type", f"must be one or more of {', '.join(TYPES)}")
    return names


def read_values(schema: Schema, place: str) -> list[Json]:
    """What `enum`, `const` and `type` together leave, each value once."""
    values = schema.get("enum", [schema.get("const")])
    if not isinstance(values, list) or len(values) > MAX_ELEMENTS:
        raise refuse(f"{place}/enum", f"must be a list of at most {MAX_ELEMENTS} values")
    types = read_types(schema, place)
    kept = {identify(value): value for value in values if not types or allows_types(types, {type_of(value)})}
    if "const" in schema:
        wanted = identify(schema["const"])
        kept = {text: value for text, value in kept.items() if text == wanted}
    if not kept:
        raise refuse(place, "no value is allowed")
    return list(kept.values())


def allows_types(types: list[str], given: set[str]) -> bool:
    """Whether the types allow all that are given; each integer is a number."""
    return given <= {*types, *(["integer"] if "number" in types else [])}


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
    """Each property's schema by name, and which ones are required; those that are only required are as `additionalProperties` says."""
    properties, required = schema.get("properties", {}), schema.get("required", [])
    if not isinstance(properties, dict):
        raise refuse(f"{place}/properties", "must be an object")
    if not isinstance(required, list):
        raise refuse(f"{place}/required", "must be a list")
    others = schema.get("additionalProperties", False)
    if others is not False:
        properties = properties | {name: others for name in required if isinstance(name, str) and name not in properties}
    for name in required:
        if not isinstance(name, str) or name not in properties:
            raise refuse(f"{place}/required", f'"{show_name(str(name))}" is not among the properties')
    return properties, {name for name in required if isinstance(name, str)}


def read_items(schema: Schema, place: str) -> tuple[list[Json], str, Json]:
    """The first items' schemas, the keyword that they come from, and the schema of those behind them, None if nothing says it.

    Before 2020 a list stood in `items`, and `additionalItems` said what `items` says now; beside `items` of one schema it says nothing.
    """
    if isinstance(schema.get("items"), list):
        return read_list(schema, "items", place), "items", schema.get("additionalItems")
    first = read_list(schema, "prefixItems", place) if "prefixItems" in schema else []
    return first, "prefixItems", schema.get("items")


def read_map(schema: Schema, place: str) -> tuple[Schema, Json]:
    """The schemas of names and of values in an object that names no properties."""
    patterns, others = schema.get("patternProperties", {}), schema.get("additionalProperties", True)
    if not isinstance(patterns, dict):
        raise refuse(f"{place}/patternProperties", "must be an object")
    names = _read_names(schema, place)
    if not patterns:
        return names, others
    if len(patterns) > 1 or names or schema.get("additionalProperties", False) is not False:
        raise refuse(f"{place}/patternProperties", "one pattern can be honoured, where no other name is described")
    ((pattern, values),) = patterns.items()
    return {"pattern": pattern}, values


def check_names(schema: Schema, properties: Schema, place: str) -> None:
    """Refuses what is said of names by other means, unless it says nothing of the properties that are named."""
    names = _read_names(schema, place)
    listed = names.get("enum", [])
    if names and not (set(names) == {"enum"} and isinstance(listed, list) and all(name in listed for name in properties)):
        raise refuse(f"{place}/propertyNames", "must list all properties where some are named")
    if schema.get("patternProperties"):
        raise refuse(f"{place}/patternProperties", "cannot be combined with properties")


def _read_names(schema: Schema, place: str) -> Schema:
    """What `propertyNames` says besides that names are strings."""
    names = schema.get("propertyNames", True)
    if not isinstance(names, dict) and names is not True:
        raise refuse(f"{place}/propertyNames", "must be a schema of strings")
    given = {key: value for key, value in names.items() if key not in _NO_EFFECT} if isinstance(names, dict) else {}
    if "string" not in read_types({"type": given.pop("type", "string")}, f"{place}/propertyNames"):
        raise refuse(f"{place}/propertyNames", "must be a schema of strings")
    return given


def read_bounds(schema: Schema, place: str) -> tuple[Fraction | None, Fraction | None]:
    """The least and the greatest number. A bound that is itself excluded is moved by the smallest step that bounds can have."""
    step = Fraction(1, 10**BOUND_DECIMALS)
    lows = [_read_bound(schema, name, place) + move for name, move in (("minimum", 0), ("exclusiveMinimum", step)) if name in schema]
    highs = [_read_bound(schema, name, place) - move for name, move in (("maximum", 0), ("exclusiveMaximum", step)) if name in schema]
    return max(lows, default=None), min(highs, default=None)


def _read_bound(schema: Schema, name: str, place: str) -> Fraction:
    value = schema[name]
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise refuse(f"{place}/{name}", "must be a number")
    bound = Fraction(repr(value))
    if (bound * 10 ** (BOUND_DECIMALS - 1)).denominator != 1:
        raise refuse(f"{place}/{name}", f"must have at most {BOUND_DECIMALS - 1} decimals")
    return bound

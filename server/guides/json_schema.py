"""JSON Schema: what `compile_schema` makes of one, and which part of the language that is.

Every answer is a compact JSON text (no blanks) that the schema allows, but not every value that the schema allows can be an answer:

* Properties come in the order of the schema, and none come that it does not name, whatever `additionalProperties` says, but for those that
  are required. An object without named properties is a map of any names, or of those that `propertyNames` or `patternProperties` allow.
* First items come all. Beyond them, items come only if `items` (`additionalItems`) says what they are or `minItems` asks for them.
* `pattern` matches anywhere in the string. It, a `format` of a table and bounds of length hold together.
* Keywords of a type mean that type where no `type` is given.
* Numbers are those of `json_numbers`, strings those of `json_strings`.
* `oneOf` is for options that exclude each other (`json_overlap`); `allOf` may hold one schema.

A keyword that is not understood is refused, and so is a combination of keywords that only a validator could honour.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from urllib.parse import unquote

from server.guides.characters import ALPHABET
from server.guides.grammar import EMPTY, ROOT, Chars, Literal, Node, Reference, Repeat, Rule, choice, optional, sequence
from server.guides.intersection import Wanted, intersect_all
from server.guides.json_keywords import (
    HOLDING,
    TYPES,
    Schema,
    allows_types,
    check_names,
    find_deciding,
    read_bounds,
    read_counts,
    read_items,
    read_list,
    read_map,
    read_properties,
    read_text,
    read_types,
    read_values,
    type_of,
)
from server.guides.json_numbers import INTEGER, NUMBER, integers_between, numbers_between
from server.guides.json_overlap import check_exclusive
from server.guides.json_strings import FORMATS, free_string, quote, write_steps
from server.guides.json_text import Json, read_json, write_json
from server.guides.limits import MAX_RULES, MAX_SCHEMAS
from server.guides.refusal import refuse, show_name
from server.guides.regex import parse_pattern, parse_regex


def compile_schema(text: str) -> dict[str, Rule]:
    """Rules for the values that a schema, given as JSON text, allows."""
    return _Compiler(read_json(text)).compile()


def compile_any_object() -> dict[str, Rule]:
    """Rules for any JSON object."""
    return _Compiler({"type": "object"}).compile()


class _Compiler:
    """Compiles one document. Subschemas become nodes in place; those referred to become rules, one each, and so do shared parts."""

    def __init__(self, document: Json) -> None:
        self._document = document
        self._rules: dict[str, Rule] = {ROOT: Rule(EMPTY, "#")}
        self._shared: dict[Hashable, Reference] = {("$ref", "#"): Reference(ROOT)}
        self._pending: list[tuple[Reference, Json, str]] = [(Reference(ROOT), document, "#")]
        self._compiled = 0

    def compile(self) -> dict[str, Rule]:
        while self._pending:
            reference, schema, place = self._pending.pop()
            self._rules[reference.rule] = Rule(self._schema(schema, place), place)
        return self._rules

    def _schema(self, schema: Json, place: str) -> Node:
        self._compiled += 1
        if self._compiled > MAX_SCHEMAS:
            raise refuse(place, f"more than {MAX_SCHEMAS} schemas")
        if schema is True:
            return self._any_value()
        if not isinstance(schema, dict):
            raise refuse(place, "false allows no value" if schema is False else "a schema must be an object or a boolean")
        deciding = find_deciding(schema, place)
        if "type" in schema and deciding in HOLDING and not allows_types(read_types(schema, place), self._types_of(schema, place)):
            raise refuse(place, f'"{deciding}" cannot be combined with "type", unless it allows no other')
        match deciding:
            case "$ref":
                return self._reference(schema["$ref"], place)
            case "enum" | "const":
                return choice(Literal(write_json(value)) for value in read_values(schema, place))
            case "":
                types = read_types(schema, place)
                return choice(self._typed(name, schema, place) for name in types) if types else self._any_value()
            case keyword:
                return self._combined(keyword, schema, place)

    def _combined(self, keyword: str, schema: Schema, place: str) -> Node:
        options = read_list(schema, keyword, place)
        if keyword == "allOf" and len(options) > 1:
            raise refuse(f"{place}/allOf", "may hold only one schema")
        if keyword == "oneOf":
            check_exclusive(options, self._follow, f"{place}/oneOf")
        return choice(self._schema(option, f"{place}/{keyword}/{number}") for number, option in enumerate(options))

    def _reference(self, pointer: Json, place: str) -> Node:
        target, target_place = self._resolve(pointer, place)
        key = ("$ref", pointer)
        if key not in self._shared:
            self._pending.append((self._name(key), target, target_place))
        return self._shared[key]

    def _resolve(self, pointer: Json, place: str) -> tuple[Json, str]:
        """What a reference points at, and the place of that."""
        if not isinstance(pointer, str) or not (pointer == "#" or pointer.startswith("#/")):
            raise refuse(f"{place}/$ref", 'must point into this schema, as in "#/$defs/name"')
        value, target_place = self._document, "#"
        for step in unquote(pointer).split("/")[1:]:
            name = step.replace("~1", "/").replace("~0", "~")
            if isinstance(value, dict) and name in value:
                value = value[name]
            elif isinstance(value, list) and name in map(str, range(len(value))):
                value = value[int(name)]
            else:
                raise refuse(f"{place}/$ref", "points at nothing")
            target_place += f"/{show_name(name)}"
        return value, target_place

    def _follow(self, schema: Json) -> Json:
        """The schema behind references, as far as they go within reason."""
        for _ in range(8):
            if not isinstance(schema, dict) or "$ref" not in schema:
                break
            schema, _place = self._resolve(schema["$ref"], "#")
        return schema

    def _types_of(self, schema: Json, place: str, within: int = 8) -> set[str]:
        """The types that a schema allows, as far as is found within so many steps; a `type` beside other schemas is left out."""
        if not isinstance(schema, dict) or not within:
            return set(TYPES)
        deciding = find_deciding(schema, place)
        if deciding == "$ref":
            return self._types_of(self._resolve(schema["$ref"], place)[0], place, within - 1)
        if deciding in HOLDING:
            return {name for option in read_list(schema, deciding, place) for name in self._types_of(option, place, within - 1)}
        return {type_of(value) for value in read_values(schema, place)} if deciding else set(read_types(schema, place) or TYPES)

    def _typed(self, name: str, schema: Schema, place: str) -> Node:
        match name:
            case "object":
                return self._object(schema, place)
            case "array":
                return self._array(schema, place)
            case "string":
                return self._string(schema, place)
            case "integer" | "number":
                return self._number(name, schema, place)
            case "boolean":
                return choice((Literal("true"), Literal("false")))
            case _:
                return Literal("null")

    def _object(self, schema: Schema, place: str) -> Node:
        properties, required = read_properties(schema, place)
        if not properties:
            return self._map(schema, place)
        check_names(schema, properties, place)
        members = [(name, self._member(name, properties[name], f"{place}/properties/{show_name(name)}")) for name in properties]
        firsts: list[Node] = [Literal("}")]
        rest: Node = Literal("}")
        for name, member in reversed(members):
            rest = self._share(rest, place)
            first, later = sequence((member, rest)), sequence((Literal(","), member, rest))
            firsts = [first] if name in required else [*firsts, first]
            rest = later if name in required else choice((later, rest))
        return sequence((Literal("{"), choice(reversed(firsts))))

    def _member(self, name: str, schema: Json, place: str) -> Node:
        return sequence((Literal(write_json(name) + ":"), self._share(self._schema(schema, place), place)))

    def _map(self, schema: Schema, place: str) -> Node:
        names, values = read_map(schema, place)
        if values is False:
            return Literal("{}")
        value = self._schema(values, f"{place}/additionalProperties")
        name = self._schema({**names, "type": "string"}, f"{place}/propertyNames")
        member = self._share(sequence((name, Literal(":"), value)), place)
        return sequence((Literal("{"), _list([], member, 0, None), Literal("}")))

    def _array(self, schema: Schema, place: str) -> Node:
        low, high = read_counts(schema, "minItems", "maxItems", place)
        prefix, keyword, items = read_items(schema, place)
        first = [self._share(self._schema(item, f"{place}/{keyword}/{n}"), place) for n, item in enumerate(prefix[:high])]
        if prefix and items is None:
            high = low
        if items is False or (high is not None and high <= len(first)):
            if low > len(first):
                raise refuse(place, '"minItems" asks for more items than are allowed')
            body = _list(first, EMPTY, 0, len(first))
        else:
            rest = self._schema(True if items is None else items, f"{place}/items")
            body = _list(first, self._share(rest, place), low, high)
        return sequence((Literal("["), body, Literal("]")))

    def _string(self, schema: Schema, place: str) -> Node:
        low, high = read_counts(schema, "minLength", "maxLength", place)
        wanted = parse_pattern(read_text(schema, "pattern", place), f"{place}/pattern") if "pattern" in schema else []
        if "format" in schema:
            wanted += self._format(read_text(schema, "format", place), place, is_all=not wanted)
        if not wanted:
            return self._free_string(low, high)
        if (low, high) != (0, None):
            wanted.append(Wanted(Repeat(Chars(ALPHABET), low, high)))
        if len(wanted) == 1:
            return self._once(("text", wanted[0]), lambda: quote(wanted[0].node), place)
        return self._text(tuple(wanted), place)

    def _format(self, name: str, place: str, *, is_all: bool) -> list[Wanted]:
        """One that is not in the table only describes, as JSON Schema has it, where a pattern says what it is."""
        if name in FORMATS:
            return [Wanted(parse_regex(FORMATS[name]))]
        if is_all:
            raise refuse(f"{place}/format", f"must be one of {', '.join(FORMATS)}, or have a pattern")
        return []

    def _text(self, wanted: tuple[Wanted, ...], place: str) -> Node:
        """A string of which several things are wanted."""
        if wanted not in self._shared:
            steps = intersect_all(wanted, place)
            names = {number: self._name((wanted, number)) for number in steps}
            self._rules |= {name: Rule(node, place) for name, node in write_steps(steps, names.__getitem__).items()}
            self._shared[wanted] = names[0]
        return sequence((Literal('"'), self._shared[wanted]))

    def _number(self, name: str, schema: Schema, place: str) -> Node:
        low, high = read_bounds(schema, place)
        if low is None and high is None:
            return self._once(name, lambda: INTEGER if name == "integer" else NUMBER, place)

        def build() -> Node:
            node = (integers_between if name == "integer" else numbers_between)(low, high)
            if node is None:
                raise refuse(place, "no number lies within these bounds")
            return node

        return self._once((name, low, high), build, place)

    def _free_string(self, low: int, high: int | None) -> Node:
        return self._once(("string", low, high), lambda: free_string(low, high), "#")

    def _any_value(self) -> Node:
        if "any" not in self._shared:
            self._pending.append((self._name("any"), {"type": ["object", "array", "string", "number", "boolean", "null"]}, "#"))
        return self._shared["any"]

    def _once(self, key: Hashable, build: Callable[[], Node], place: str) -> Node:
        """A reference to a rule, which is built once for each key."""
        if key not in self._shared:
            self._rules[self._name(key).rule] = Rule(build(), place)
        return self._shared[key]

    def _share(self, node: Node, place: str) -> Node:
        """A node that may stand in several places: the rules stay small, and the engine has each part but once."""
        return node if isinstance(node, Literal | Reference) else self._once(node, lambda: node, place)

    def _name(self, key: Hashable) -> Reference:
        if len(self._shared) > MAX_RULES:
            raise refuse("#", f"the schema is too large: more than {MAX_RULES} rules")
        self._shared[key] = Reference(f"{len(self._shared)}")
        return self._shared[key]


def _list(first: list[Node], item: Node, low: int, high: int | None) -> Node:
    """The first items, then `item` until there are from `low` to `high` in all, with commas between."""
    if high == 0:
        return EMPTY
    head, *others = first or [item]
    count = 1 + len(others)
    more = Repeat(sequence((Literal(","), item)), max(0, low - count), None if high is None else max(0, high - count))
    body = sequence([head, *(sequence((Literal(","), other)) for other in others), more])
    return body if first or low else optional(body)

"""Answers guided by a schema: which texts there are and that a validator accepts every one."""

from __future__ import annotations

import ipaddress
import json
import re
import uuid
from collections.abc import Callable
from datetime import date, datetime, time
from random import Random
from typing import Any
from urllib.parse import urlsplit

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from server.engine.base import GuideKind
from server.guides.json_strings import FORMATS
from tests.unit.server.guides.derivation import Writer, compile_rules, matches

A, B = {"const": "a"}, {"const": "b"}
DRAFT_7 = {"$schema": "http://json-schema.org/draft-07/schema#"}
PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer"}, "tags": {"type": "array", "items": {"type": "string"}}},
    "required": ["age"],
}
TREE = {"$ref": "#/$defs/t", "$defs": {"t": {"type": "object", "properties": {"l": {"$ref": "#/$defs/t"}, "v": {"type": "null"}}}}}
CASES: list[tuple[Any, list[str], list[str]]] = [
    ({"type": "null"}, ["null"], ["", "nul", " null"]),
    ({"type": "boolean"}, ["true", "false"], ["True", "null"]),
    ({"type": ["integer", "null"]}, ["0", "-7", "12", "null"], ["01", "-0", "1.0", "+1", "1" * 16]),
    ({"type": "number"}, ["0", "-0.5", "12.25", "1e9", "3.5E-7", "1e+20"], ["01", ".5", "1.", "1e", "1e400", "NaN"]),
    (
        {"type": "number", "minimum": -90, "maximum": 90},
        ["48.8566", "-12.5", "90", "90.0", "-90", "0.1", "0"],
        ["90.1", "-90.01", "91", "-0"],
    ),
    (
        {"type": "number", "exclusiveMinimum": 0, "maximum": 1},
        ["0.5", "0.001", "1", "1.00", "0.123456"],
        ["0", "0.0", "1.01", "-0.5", "1e-1"],
    ),
    ({"type": "number", "minimum": -1e30, "maximum": 1e30}, ["0.5", "-123456789012345.5"], ["1" * 17]),
    ({"type": "number", "maximum": -0.25}, ["-0.25", "-0.3", "-1", "-100.5"], ["-0.2", "0", "-0", "0.3"]),
    ({"type": "string"}, ['""', '"é☃😀"', r'"a\"\\\n"'], ['"', '"\n"', '"\x01"', r'"\q"', r'"\u0041"', r'"\/"', "a"]),
    ({"type": "string", "minLength": 1, "maxLength": 2}, ['"é"', r'"\"\\"', '"😀a"'], ['""', '"abc"']),
    ({"maxLength": 0}, ['""'], ['"a"', "1"]),
    ({"type": "string", "minLength": 2}, ['"ab"', '"abcdef"'], ['"a"']),
    ({"type": "string", "pattern": r"^[A-Z]{2}\d$"}, ['"AB1"'], ['"AB"', '"AB12"']),
    ({"pattern": "^https?://"}, ['"https://"', '"http://a.b/c?d=\\"e\\""'], ['"ftp://"', '" https://"', '"https:/"']),
    ({"pattern": "éc$"}, ['"éc"', '"lycéc"', r'"\n\"éc"'], ['"éca"', '"éC"']),
    ({"pattern": "b|^a$"}, ['"a"', '"abc"'], ['"aa"', '""']),
    ({"pattern": ""}, ['""', '"a"'], []),
    ({"pattern": "^"}, ['""', '"a"'], []),
    ({"pattern": "^$"}, ['""'], ['"a"']),
    ({"pattern": "a", "minLength": 2, "maxLength": 3}, ['"ab"', '"ba"', '"aaa"', r'"\"a"'], ['"a"', '"bb"', '"abcd"']),
    ({"pattern": "^[a-f]+$", "maxLength": 2}, ['"a"', '"ab"'], ['""', '"abc"', '"x"']),
    ({"pattern": r"^(?=.*\d)(?!.*\s)(?!no)[^é]+$"}, ['"a1"', '"n1"'], ['"a"', '"a 1"', '"a1\u00a0"', '"no1"', '"1é"']),
    ({"pattern": "^[a-z]+$", "format": "nickname"}, ['"ab"'], ['"A"']),
    ({"format": "date", "maxLength": 10, "minLength": 10}, ['"2026-12-01"'], ['"2026-13-01"']),
    ({"type": "string", "pattern": '[^a]"'}, [r'"b\""', r'"\\\""', r'"\n\""'], ['"b""', r'"a\""']),
    ({"type": "string", "pattern": r"^\x07$"}, [r'"\u0007"'], ['"\x07"']),
    ({"enum": ["a\n", 1, None, {"b": [1.5, True]}]}, [r'"a\n"', "1", "null", '{"b":[1.5,true]}'], ['"b"', "1.0"]),
    ({"enum": ["a", 1], "type": "string"}, ['"a"'], ["1"]),
    ({"enum": ["a", "b"], "const": "b", "title": "B"}, ['"b"'], ['"a"']),
    ({"const": 1.0}, ["1"], ["1.0", "true"]),
    ({"const": "\0\u2028é"}, ['"\\u0000\u2028é"'], []),
    (PERSON, ['{"age":1}', '{"name":"x","age":1,"tags":["a","b"]}'], ['{"name":"x"}', '{"age":1,"name":"x"}', '{"age": 1}', '{"age":1,}']),
    ({"properties": {"a": A, "b": B}}, ["{}", '{"a":"a"}', '{"b":"b"}', '{"a":"a","b":"b"}'], ['{,"b":"b"}', '{"a":"a",}', "null"]),
    ({"type": "object", "additionalProperties": False}, ["{}"], ['{"a":1}']),
    ({"additionalProperties": {"type": "integer"}}, ["{}", '{"x":1,"":2}'], ['{"x":"y"}', "{x:1}"]),
    ({"type": "object"}, ["{}", '{"a":{"b":[1,{"c":"d"}]},"e":null}'], ["[]", '{"a"}']),
    ({"properties": {'q"': {"type": "null"}}}, [r'{"q\"":null}'], ['{"q"":null}']),
    ({"items": {"type": "integer"}, "minItems": 1, "maxItems": 2}, ["[1]", "[1,2]"], ["[]", "[1,2,3]", "[1,]"]),
    ({"type": "array", "maxItems": 0}, ["[]"], ["[1]"]),
    ({"items": {"type": "null"}, "minItems": 2}, ["[null,null]", "[null,null,null]"], ["[null]"]),
    ({"prefixItems": [A, B]}, ['["a","b"]'], ['["a"]', '["a","b",1]', "[]"]),
    ({"prefixItems": [A, B], "maxItems": 1}, ['["a"]'], ['["a","b"]', "[]"]),
    ({"prefixItems": [A], "items": {"type": "integer"}, "minItems": 2, "maxItems": 3}, ['["a",1]', '["a",1,2]'], ['["a"]', '["a",1,2,3]']),
    ({"prefixItems": [A], "minItems": 2}, ['["a",null]', '["a",[1]]'], ['["a"]', '["a",1,2]']),
    ({**DRAFT_7, "items": [A, B]}, ['["a","b"]'], ['["a"]', '["a","b",1]']),
    ({**DRAFT_7, "items": [A], "additionalItems": {"type": "null"}}, ['["a"]', '["a",null]'], ['["a",1]', "[]"]),
    ({**DRAFT_7, "items": [A], "additionalItems": False, "minItems": 1}, ['["a"]'], ['["a",1]']),
    ({"items": A, "additionalItems": False}, ["[]", '["a","a"]'], ['["b"]']),
    ({"propertyNames": {"type": "string"}, "additionalProperties": B}, ["{}", '{"x":"b"}'], ['{"x":1}']),
    ({"propertyNames": {"enum": ["x", "é"]}, "additionalProperties": B}, ["{}", '{"é":"b"}'], ['{"y":"b"}']),
    ({"propertyNames": {"type": "string", "pattern": "^x"}, "type": "object"}, ["{}", '{"xy":1}'], ['{"y":1}']),
    ({"properties": {"a": A}, "propertyNames": {"type": "string"}}, ["{}", '{"a":"a"}'], ['{"b":1}']),
    (
        {"propertyNames": {"enum": ["x", "y"]}, "additionalProperties": B, "required": ["x", "y"]},
        ['{"x":"b","y":"b"}'],
        ['{"x":"b"}', "{}"],
    ),
    ({"patternProperties": {"^x": B}, "additionalProperties": False}, ["{}", '{"x1":"b"}'], ['{"y":"b"}', '{"x":1}']),
    ({"patternProperties": {"": B}}, ["{}", '{"y":"b"}'], ['{"x":1}']),
    ({"$ref": "#/$defs/s", "type": "string", "$defs": {"s": {"enum": ["a"]}}}, ['"a"'], ['"b"']),
    ({"type": ["null", "number"], "anyOf": [{"type": "null"}, {"type": "integer"}]}, ["null", "1"], ['"a"']),
    ({"type": "object", "allOf": [{"$ref": "#/$defs/o"}], "$defs": {"o": {"properties": {"a": A}}}}, ["{}", '{"a":"a"}'], ["1"]),
    ({"anyOf": [{"type": "null"}, {"type": "boolean"}]}, ["null", "true"], ["1"]),
    ({"allOf": [{"$ref": "#/definitions/x"}], "default": 1, "definitions": {"x": {"type": "integer"}}}, ["5"], ['"5"']),
    ({"oneOf": [{"type": "string"}, {"type": "integer"}, {"const": None}]}, ['"a"', "1", "null"], ["true"]),
    (TREE, ["{}", '{"l":{"l":{"v":null}},"v":null}'], ['{"l":null}']),
    ({"$ref": "#/$defs/a~1b%25", "$defs": {"a/b%": {"type": "null"}}}, ["null"], ["1"]),
    ({"anyOf": [{"type": "null"}, {"$ref": "#/anyOf/0"}]}, ["null"], ["1"]),
    (True, ['{"a":[1,"b",true,null]}', "[]", '"x"', "-1.5"], ["", "[1 ]", "{}{}"]),
    ({"description": "anything"}, ["1", "{}"], ["x"]),
]


@pytest.mark.parametrize(("schema", "answers", "others"), CASES)
def test_texts_of_a_schema(schema: Any, answers: list[str], others: list[str]) -> None:
    """Each answer can be written, and no other text can; where both are JSON, a validator agrees about the answers."""
    rules = compile_rules(GuideKind.JSON_SCHEMA, json.dumps(schema))
    for text in answers:
        jsonschema.validate(json.loads(text), schema)
        assert matches(rules, text), text
    for text in others:
        assert not matches(rules, text), text


def test_discriminated_options_exclude_each_other() -> None:
    """`oneOf` is understood where a required property tells the options apart, as pydantic writes tagged unions."""
    cat = {"type": "object", "properties": {"kind": {"$ref": "#/$defs/Kind"}, "lives": {"type": "integer"}}, "required": ["kind"]}
    dog = {"type": "object", "properties": {"kind": {"enum": ["dog", "puppy"]}}, "required": ["kind"]}
    schema = {"oneOf": [{"$ref": "#/$defs/Cat"}, dog], "discriminator": {"propertyName": "kind"}}
    schema["$defs"] = {"Cat": cat, "Kind": {"const": "cat"}}
    rules = compile_rules(GuideKind.JSON_SCHEMA, json.dumps(schema))
    assert matches(rules, '{"kind":"cat","lives":9}')
    assert matches(rules, '{"kind":"puppy"}')
    assert not matches(rules, '{"kind":"puppy","lives":9}')


PYDANTIC: dict[str, Any] = {
    "$defs": {
        "Kind": {"enum": ["sécurité", "Größe"], "title": "Kind", "type": "string"},
        "Place": {
            "properties": {"lat": {"maximum": 90, "minimum": -90, "title": "Lat", "type": "number"}},
            "required": ["lat"],
            "title": "Place",
            "type": "object",
        },
    },
    "properties": {
        "kind": {"$ref": "#/$defs/Kind", "default": "Größe", "description": "Which."},
        "site": {"format": "uri", "minLength": 1, "title": "Site", "type": "string"},
        "place": {"anyOf": [{"$ref": "#/$defs/Place"}, {"type": "null"}], "default": None},
        "pair": {
            "maxItems": 2,
            "minItems": 2,
            "prefixItems": [{"type": "integer"}, {"format": "date", "type": "string"}],
            "title": "Pair",
            "type": "array",
        },
        "codes": {"patternProperties": {"^[A-Z]{2}$": {"type": "integer"}}, "title": "Codes", "type": "object"},
        "counts": {
            "additionalProperties": {"type": "integer"},
            "propertyNames": {"$ref": "#/$defs/Kind"},
            "title": "Counts",
            "type": "object",
        },
        "name": {"maxLength": 20, "minLength": 2, "pattern": "^[a-z]+$", "title": "Name", "type": "string"},
    },
    "required": ["site", "pair", "codes", "counts", "name"],
    "title": "Thing",
    "type": "object",
}
"""As its model_json_schema() writes it."""


def test_a_schema_as_pydantic_writes_it() -> None:
    """Each construct is understood, and whatever is written validates."""
    rules = compile_rules(GuideKind.JSON_SCHEMA, json.dumps(PYDANTIC))
    thing = {"kind": "sécurité", "site": "https://example.com/", "place": {"lat": -12.5}, "pair": [1, "2024-02-29"]}
    thing |= {"codes": {"DE": 1}, "counts": {"Größe": 3}, "name": "ann"}
    assert matches(rules, json.dumps(thing, ensure_ascii=False, separators=(",", ":")))
    for seed in range(20):
        jsonschema.validate(json.loads(Writer(rules, Random(seed)).write()), PYDANTIC)


BOUNDS = st.none() | st.integers(-1200, 1200) | st.decimals(-120, 120, places=2).map(float)


@settings(deadline=None)
@given(low=BOUNDS, high=BOUNDS, exclusive=st.booleans(), seed=st.integers())
def test_numbers_stay_within_their_bounds(low: float | None, high: float | None, exclusive: bool, seed: int) -> None:
    """Whole numbers are answers exactly if a validator accepts them; others that are written lie within."""
    names = ("exclusiveMinimum", "exclusiveMaximum") if exclusive else ("minimum", "maximum")
    bounds = {name: bound for name, bound in zip(names, (low, high), strict=True) if bound is not None}
    random = Random(seed)
    near = int(next((bound for bound in (low, high) if bound is not None), 0))
    for kind in ("integer", "number"):
        validator = jsonschema.Draft202012Validator({"type": kind, **bounds})
        span = range(near - 15, near + 16)
        if not any(validator.is_valid(number) for number in range(-1300, 1300)):
            continue
        rules = compile_rules(GuideKind.JSON_SCHEMA, json.dumps(validator.schema))
        assert [n for n in span if matches(rules, str(n))] == [n for n in span if validator.is_valid(n)]
        if kind == "number":
            parts = [f"{whole:.{decimals}f}" for whole in (low or 0, high or 0) for decimals in (1, 2, 3, 5)]
            parts += [f"{near + random.randint(-30000, 30000) / 10000:.4f}" for _ in range(30)]
            texts = [text for text in parts if float(text) or not text.startswith("-")]
            assert [it for it in texts if matches(rules, it)] == [it for it in texts if validator.is_valid(float(it))]
        validator.validate(json.loads(Writer(rules, random).write()))


CHECKS: dict[str, Callable[[str], object]] = {
    "date": date.fromisoformat,
    "time": time.fromisoformat,
    "date-time": datetime.fromisoformat,
    "duration": re.compile(r"P(?=[\dT])(\d+W|(\d+Y)?(\d+M)?(\d+D)?(T(?=\d)(\d+H)?(\d+M)?(\d+S)?)?)").fullmatch,
    "email": re.compile(r"[^@\s]+@[\w-]+(\.[\w-]+)+").fullmatch,
    "hostname": re.compile(r"[A-Za-z0-9-]+(\.[A-Za-z0-9-]+)*").fullmatch,
    "ipv4": ipaddress.IPv4Address,
    "ipv6": ipaddress.IPv6Address,
    "uri": urlsplit,
    "uuid": uuid.UUID,
}


@pytest.mark.parametrize("name", FORMATS)
def test_formats_are_what_their_names_say(name: str) -> None:
    """Python's own parsers take every text that is written; a date is one that the calendar has."""
    rules = compile_rules(GuideKind.JSON_SCHEMA, json.dumps({"type": "string", "format": name}))
    for seed in range(50):
        assert CHECKS[name](json.loads(Writer(rules, Random(seed)).write())), seed


COMMON = {
    "date": ["2024-02-29", "2000-02-29", "0476-09-04", "9999-12-31"],
    "time": ["23:59:59Z", "06:16:03.123456+01:00"],
    "date-time": ["2024-02-29T00:00:00Z"],
    "duration": ["P3D", "PT1H30M", "P1Y2M10DT2H30M", "P2W", "PT36H", "P0D"],
    "email": ["ann@example.com", "O'Neil+news@Mail.Example.photography"],
    "hostname": ["localhost", "xn--mnchen-3ya.example", "Example.com"],
    "ipv4": ["127.0.0.1", "255.255.255.0"],
    "ipv6": ["::1", "::", "2001:db8::8a2e:370:7334", "fe80::", "2001:DB8:0:0:0:0:0:1"],
    "uri": [
        "https://example.com:8443/a%20b/?q=1&r=2#top",
        "mailto:ann@example.com",
        "urn:isbn:0451450523",
        "http://127.0.0.1",
        "s3://bucket/key",
    ],
    "uuid": ["F81D4FAE-7DEC-11D0-A765-00A0C91E6BF6"],
}
NONE = {
    "date": ["2026-02-29", "1900-02-29", "0000-01-01"],
    "duration": ["P", "PT", "P1DT", "P1W2D"],
    "email": ["ann", "a..b@example.com", "a@b"],
    "ipv6": [":", ":::", "1::2::3", "1:2:3:4:5:6:7:8:9", "1:2:3:4:5:6:7::8", "12345::"],
    "uri": ["example.com", "http://", "https://a b", "http:///a"],
}


@pytest.mark.parametrize("name", FORMATS)
def test_formats_leave_out_nothing_common(name: str) -> None:
    """A value that a document really holds can be written; one that is none cannot."""
    rules = compile_rules(GuideKind.JSON_SCHEMA, json.dumps({"format": name}))
    for text in COMMON[name]:
        CHECKS[name](text)
        assert matches(rules, json.dumps(text)), text
    assert not any(matches(rules, json.dumps(text)) for text in NONE.get(name, ()))


COUNT = st.integers(0, 3)
LEAVES: st.SearchStrategy[Any] = st.one_of(
    st.just({"type": "boolean"}),
    st.just({"type": ["null", "integer"]}),
    st.just({}),
    st.just({"$ref": "#/$defs/tree"}),
    st.builds(lambda low, more: {"type": "string", "minLength": low, "maxLength": low + more}, COUNT, COUNT),
    st.sampled_from(["^[a-z]{1,3}$", 'x"?[^"]', r"\d+\.\d|\n", "[^\\x00-\\x7f]{2}"]).map(lambda it: {"type": "string", "pattern": it}),
    st.sampled_from(["date", "uuid", "ipv4"]).map(lambda it: {"type": "string", "format": it}),
    st.builds(lambda low, more: {"type": "number", "minimum": low, "maximum": low + more}, st.integers(-99, 99), st.integers(0, 200)),
    st.lists(st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=3), min_size=1, max_size=4).map(lambda it: {"enum": it}),
)


def _branches(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    names = st.text('ab"\\é', max_size=2)
    properties = st.dictionaries(names, st.tuples(inner, st.booleans()), max_size=4)
    arrays = st.builds(lambda it, low, more: {"type": "array", "items": it, "minItems": low, "maxItems": low + more}, inner, COUNT, COUNT)
    maps = inner.map(lambda it: {"type": "object", "additionalProperties": it})
    tuples = st.lists(inner, min_size=1, max_size=3).map(lambda it: {"type": "array", "prefixItems": it, "items": False})
    options = st.lists(inner, min_size=1, max_size=3).map(lambda it: {"anyOf": it})
    return properties.map(_as_object) | arrays | maps | tuples | options


def _as_object(properties: dict[str, tuple[Any, bool]]) -> dict[str, Any]:
    required = [name for name, (_, needed) in properties.items() if needed]
    return {"type": "object", "properties": {name: schema for name, (schema, _) in properties.items()}, "required": required}


DEFINITIONS = {"tree": {"type": "object", "properties": {"next": {"$ref": "#/$defs/tree"}, "v": {"type": "integer"}}, "required": ["v"]}}


@settings(deadline=None)
@given(schema=st.recursive(LEAVES, _branches, max_leaves=8), seed=st.integers())
def test_every_answer_is_compact_json_that_validates(schema: Any, seed: int) -> None:
    """Whatever the grammar lets the engine write is JSON, has no blanks between its parts, and satisfies the schema."""
    document = {"anyOf": [schema], "$defs": DEFINITIONS}
    validator = jsonschema.Draft202012Validator(document, format_checker=jsonschema.FormatChecker())
    rules = compile_rules(GuideKind.JSON_SCHEMA, json.dumps(document))
    random = Random(seed)
    for _ in range(3):
        text = Writer(rules, random).write()
        validator.validate(json.loads(text))
        assert not re.search(r"\s", re.sub(r'"(?:[^"\\]|\\.)*"', "", text))
        assert matches(rules, text)

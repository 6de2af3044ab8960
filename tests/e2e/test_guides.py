"""What `server.guides` writes, before the real engine: every construct is accepted, binds the answer, and leaves the engine whole."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import jsonschema
import pytest

from server.engine.base import Guide, GuideKind, RequestRefused
from server.guides import compile_guide
from tests.e2e.pipeline import Pipeline
from tests.unit.server.guides.poison import POISON

pytestmark = [pytest.mark.model, pytest.mark.timeout(300)]

PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 20},
        "age": {"type": "integer", "minimum": 0, "maximum": 130},
        "role": {"enum": ["admin", "user", "guest"]},
        "tags": {"type": "array", "items": {"type": "string", "maxLength": 12}, "minItems": 1, "maxItems": 3},
        "active": {"type": "boolean"},
        "score": {"type": "number", "minimum": 0, "maximum": 1},
        "joined": {"type": "string", "format": "date"},
        "address": {"anyOf": [{"$ref": "#/$defs/Address"}, {"type": "null"}]},
    },
    "required": ["name", "age", "role", "tags"],
    "$defs": {
        "Address": {
            "type": "object",
            "properties": {"street": {"type": "string", "maxLength": 20}, "zip": {"type": "string", "pattern": "^[0-9]{5}$"}},
            "required": ["street", "zip"],
        }
    },
}
SCHEMAS: dict[str, Any] = {
    "a real one": PERSON,
    "all properties optional": {"properties": {name: {"type": "string", "maxLength": 8} for name in "abcde"}},
    "text of bounded length": {"type": "string", "minLength": 8, "maxLength": 30},
    "quotes and blanks in a pattern": {"type": "string", "pattern": r'^"?[^,]{1,12}\\\t$'},
    "a pattern that begins a text": {"pattern": "^https?://", "maxLength": 30},
    "a pattern in a text": {"pattern": "éc", "minLength": 3, "maxLength": 8},
    "zod's pattern of an email": {
        "pattern": r"^(?!\.)(?!.*\.\.)([A-Za-z0-9_'+\-\.]*)[A-Za-z0-9_+-]@([A-Za-z0-9][A-Za-z0-9\-]*\.)+[A-Za-z]{2,}$",
        "maxLength": 24,
    },
    "a pattern and a format": {"format": "date", "pattern": "^2[0-9]{3}-"},
    "numbers": {"type": "array", "items": {"type": "number"}, "minItems": 3, "maxItems": 3},
    "numbers between bounds": {"type": "array", "items": {"type": "number", "minimum": -1.5, "maximum": 20}, "minItems": 4, "maxItems": 4},
    "draft-7 tuples": {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "items": [{"enum": ["é0", "\x7fa"]}, {"type": "number", "minimum": -90, "exclusiveMaximum": 90}],
        "additionalItems": False,
    },
    "formats": {
        "type": "array",
        "prefixItems": [{"type": "string", "format": name} for name in ("uuid", "date-time", "ipv4", "ipv6", "duration")],
    },
    "values of any kind": {"enum": ['é"\\ \n', {"a": [1, None, True]}, -3.5, "☃😀", "a/b\t\x01"]},
    "references": {
        "properties": {"a": {"items": {"$ref": "#/$defs/b"}, "maxItems": 2}},
        "required": ["a"],
        "$defs": {"b": {"type": "null"}},
    },
}
# Nothing bounds it, so the model may go on to the last token; what is there by then is the beginning of one.
MAP = {
    "propertyNames": {"enum": ["sécurité", "naïf"]},
    "additionalProperties": {"$ref": "#/$defs/n", "type": "null"},
    "$defs": {"n": {"type": "null"}},
}
ENTRY = '"(sécurité|naïf)":null'
MAPS = rf'\{{({ENTRY}(,{ENTRY})*)?\}}|\{{({ENTRY},)*({ENTRY}|"[a-zéï\ufffd]*("(:n?u?l?)?)?)?'
REGEXES = [
    r"[A-Z]{2}-\d{3,4}(?:foo|ba[rz]+)?!",
    r"(?:[A-Za-z]{2,10} ){1,3}[a-z]{1,9}\.",
    r"\S{3}\s\S{3}",
    r"[^a-z\n]{5}",
    r"é[α-ω]{3}😀\U0010ffff\u0001",
    r'"\\\/\.\t\[\]\^\-',
]
GRAMMARS = {
    'root ::= "(" root ")" | [0-9]{1,3} ("+" [1-9])?': r"\(*\d{1,3}(\+[1-9])?\)*",
    'root ::= item (", " item){2} "."\nitem ::= "red" | "gr" [ae] "y"': r"(red|gr[ae]y)(, (red|gr[ae]y)){2}\.",
}


@pytest.mark.slow  # two of it are among those below, and twenty of a smaller one go the whole path in test_guided.py
def test_twenty_of_twenty_answers_conform_to_a_real_schema(pipeline: Pipeline) -> None:
    """Each is whole within 200 tokens, compact, and valid: blanks without end cannot happen."""
    grammar = compile_guide(Guide(GuideKind.JSON_SCHEMA, json.dumps(PERSON)))
    for text in pipeline.answer([grammar] * 20, 200):
        jsonschema.validate(json.loads(text), PERSON)


def test_the_engine_accepts_whatever_a_guide_can_hold(pipeline: Pipeline) -> None:
    """Answers to schemas, regexes and grammars that use each construct conform, two of each."""
    checks: dict[str, Callable[[str], object]] = {}
    for schema in SCHEMAS.values():
        checks[compile_guide(Guide(GuideKind.JSON_SCHEMA, json.dumps(schema)))] = _validate(schema)
    checks[compile_guide(Guide(GuideKind.JSON_SCHEMA, json.dumps(MAP)))] = re.compile(MAPS).fullmatch
    for pattern in REGEXES:
        checks[compile_guide(Guide(GuideKind.REGEX, pattern))] = re.compile(pattern, re.ASCII).fullmatch
    for grammar, pattern in GRAMMARS.items():
        checks[compile_guide(Guide(GuideKind.EBNF_GRAMMAR, grammar))] = re.compile(pattern).fullmatch
    for check, text in zip([*checks.values()] * 2, pipeline.answer([*checks] * 2, 200), strict=True):
        assert check(text), text


def test_poison_leaves_the_engine_whole(pipeline: Pipeline) -> None:
    """Whatever is refused never reaches the engine, which answers before and after, guided and not."""
    guided = compile_guide(Guide(GuideKind.REGEX, "yes|no"))
    for guide, _ in POISON.values():
        with pytest.raises(RequestRefused):
            compile_guide(guide)
    free, bound = pipeline.answer([None, guided], 8)
    assert free
    assert bound in ("yes", "no")


def _validate(schema: Any) -> Callable[[str], bool]:
    validator = jsonschema.validators.validator_for(schema)(schema)
    return lambda text: validator.is_valid(json.loads(text))

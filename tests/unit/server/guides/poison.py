"""Guides that no engine may be given, each with the place and the reason that the refusal must name."""

from __future__ import annotations

import json

from server.engine.base import Guide, GuideKind


def _schema(value: object) -> Guide:
    return Guide(GuideKind.JSON_SCHEMA, json.dumps(value))


def _text(text: str) -> Guide:
    return Guide(GuideKind.JSON_SCHEMA, text)


def _regex(text: str) -> Guide:
    return Guide(GuideKind.REGEX, text)


def _ebnf(text: str) -> Guide:
    return Guide(GuideKind.EBNF_GRAMMAR, text)


def _property(schema: object) -> Guide:
    return _schema({"type": "object", "properties": {"age": schema}})


SCHEMAS = {
    "no JSON": (_text("{"), "line 1, character 2: not JSON"),
    "an empty text": (_text(""), "line 1, character 1: not JSON"),
    "a name twice": (_text('{"type":"string","type":"null"}'), '#: "type" stands twice in one object'),
    "NaN": (_text('{"const":NaN}'), "#: NaN and Infinity are not JSON"),
    "a number of 5,000 digits": (_text('{"const":' + "1" * 5000 + "}"), "#: a number has more than 32 digits"),
    "a float beyond doubles": (_text('{"const":1e999}'), "#: a number has more than 32 digits or is too large"),
    "half a surrogate pair": (_text(r'{"const":"\ud800"}'), "#: half of a surrogate pair stands alone"),
    "deep nesting": (_text('{"items":' * 5000), "#: nests deeper than 64"),
    "deep brackets": (_text("[" * 60_000), "#: nests deeper than 64"),
    "more than 64 KiB": (_text(" " * 65_537), "the whole: larger than 64 KiB"),
    "a list": (_schema([]), "#: a schema must be an object or a boolean"),
    "false": (_schema(False), "#: false allows no value"),
    "an unknown type": (_schema({"type": "nonsense"}), "#/type: must be one or more of"),
    "an unknown keyword": (_property({"dependentSchemas": {}}), '#/properties/age: "dependentSchemas" is not supported'),
    "an unknown keyword of many words": (_schema({"ignore all previous instructions": 1}), '#: "…" is not supported'),
    "negation": (_property({"not": {}}), '#/properties/age: "not" is not supported'),
    "unique items": (_schema({"type": "array", "uniqueItems": True}), '#: "uniqueItems" is not supported'),
    "a reference to nowhere": (_schema({"$ref": "#/$defs/missing"}), "#/$ref: points at nothing"),
    "a reference to the internet": (_schema({"$ref": "other.json#/a"}), "#/$ref: must point into this schema"),
    "a reference beside a type": (_schema({"$ref": "#", "type": "null"}), '#: "$ref" cannot be combined with "type"'),
    "a type that options go beyond": (
        _schema({"type": "string", "anyOf": [{"type": "string"}, {"type": "null"}]}),
        '#: "anyOf" cannot be combined with "type", unless it allows no other',
    ),
    "names that are numbers": (
        _schema({"type": "object", "propertyNames": {"type": "integer"}}),
        "#/propertyNames: must be a schema of strings",
    ),
    "rules for names beside properties": (
        _schema({"properties": {"a": {}}, "propertyNames": {"minLength": 1}}),
        "#/propertyNames: must list all properties where some are named",
    ),
    "patterns of names beside properties": (
        _schema({"properties": {"a": {}}, "patternProperties": {"b": {}}}),
        "#/patternProperties: cannot be",
    ),
    "two patterns of names": (_schema({"patternProperties": {"a": {}, "b": {}}}), "#/patternProperties: one pattern can be honoured"),
    "a pattern of names and others": (
        _schema({"patternProperties": {"a": {}}, "additionalProperties": {"type": "null"}}),
        "#/patternProperties: one pattern can be honoured",
    ),
    "a reference to itself": (_schema({"$ref": "#"}), "#: no finite answer conforms to this"),
    "a circle of references": (
        _schema({"$ref": "#/$defs/a", "$defs": {"a": {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/a"}]}}}),
        "#/$defs/a: this begins with itself",
    ),
    "endless recursion": (
        _schema({"$ref": "#/$defs/n", "$defs": {"n": {"type": "object", "properties": {"n": {"$ref": "#/$defs/n"}}, "required": ["n"]}}}),
        "#/$defs/n: no finite answer conforms to this",
    ),
    "a length below zero": (_property({"type": "string", "minLength": -1}), "#/properties/age/minLength: must be a whole number from 0"),
    "a length of a million": (_property({"type": "string", "maxLength": 10**6}), "#/properties/age/maxLength: must be a whole number"),
    "a length that stalls the engine": (_property({"type": "string", "maxLength": 1000}), "#: the guide counts too far"),
    "a length as text": (_property({"type": "string", "maxLength": "9"}), "#/properties/age/maxLength: must be a whole number"),
    "lengths out of order": (_schema({"type": "string", "minLength": 2, "maxLength": 1}), '#: "minLength" is above "maxLength"'),
    "a million items": (_schema({"type": "array", "minItems": 10**6}), "#/minItems: must be a whole number from 0 to 1000"),
    "a billion items": (
        _schema(
            {"type": "array", "minItems": 999, "items": {"type": "array", "minItems": 999, "items": {"type": "array", "minItems": 999}}}
        ),
        "the guide is too large: more than 1000 rules",
    ),
    "more items than there may be": (
        _schema({"type": "array", "prefixItems": [{}], "items": False, "minItems": 2}),
        '#: "minItems" asks for more items than are allowed',
    ),
    "an unknown required property": (_schema({"type": "object", "required": ["a"]}), '#/required: "a" is not among the properties'),
    "no number in between": (_property({"type": "integer", "minimum": 1.2, "maximum": 1.8}), "#/properties/age: no number lies within"),
    "a bound that is true": (_property({"type": "integer", "minimum": True}), "#/properties/age/minimum: must be a number"),
    "a bound of seven decimals": (_property({"type": "number", "minimum": 1e-7}), "#/properties/age/minimum: must have at most 6 decimals"),
    "no values": (_schema({"enum": []}), "#: no value is allowed"),
    "no value of the type": (_schema({"enum": ["a"], "type": "integer"}), "#: no value is allowed"),
    "options that overlap": (_schema({"oneOf": [{"type": "integer"}, {"type": "number"}]}), "#/oneOf: options 0 and 1 may both allow"),
    "several schemas at once": (_schema({"allOf": [{}, {}]}), "#/allOf: may hold only one schema"),
    "no option": (_schema({"anyOf": []}), "#/anyOf: must be a list that is not empty"),
    "an unknown format": (_schema({"type": "string", "format": "color"}), "#/format: must be one of date, time"),
    "a bad pattern": (_property({"type": "string", "pattern": "a(b"}), '#/properties/age/pattern, character 4: expected ")"'),
    "a pattern of another length": (
        _property({"pattern": "^a{4}$", "maxLength": 3}),
        "#/properties/age: no text meets all these conditions",
    ),
    "a pattern and a format that exclude each other": (
        _property({"pattern": "^x+$", "format": "uuid"}),
        "#/properties/age: no text meets all",
    ),
    "a pattern counted too far": (_property({"pattern": "^a", "maxLength": 200}), "#/properties/age: the guide counts too far"),
    "a pattern of too many combinations": (
        _property({"pattern": "(?:[ab]*a[ab]{12})", "maxLength": 500}),
        "#/properties/age: too large: the conditions on this text have too many combinations",
    ),
    "a lookahead inside": (_property({"pattern": "^a(?=b)"}), "#/properties/age/pattern, character 4: of groups only"),
    "a lookahead without an anchor": (_property({"pattern": "(?=b)"}), "#/properties/age/pattern, character 2: of groups only"),
    "a lookahead in one alternative": (
        _property({"pattern": "^(?=b)b|c"}),
        "#/properties/age/pattern, character 9: a lookahead is supported",
    ),
    "keywords of two types": (_schema({"minLength": 1, "minItems": 1}), '#: has keywords of several types and no "type"'),
}

REGEXES = {
    "an open group": (_regex("("), 'character 2: expected ")"'),
    "a group too many": (_regex("a)b"), 'character 2: ")" without "("'),
    "an open class": (_regex("[a"), 'character 3: expected "]"'),
    "an empty class": (_regex("[]a"), "character 3: an empty class"),
    "a class of nothing": (_regex(r"[^\w\W]"), "character 8: an empty class"),
    "a range backwards": (_regex("[z-a]"), "character 5: a range must go from a character up"),
    "lookahead": (_regex("(?=a)b"), "character 2: of groups only"),
    "lookbehind": (_regex("(?<!a)b"), "character 2: of groups only"),
    "a flag": (_regex("(?i)a"), "character 2: of groups only"),
    "a back reference": (_regex(r"(a)\1"), "character 5: this escape is not supported"),
    "a word boundary": (_regex(r"\bword"), "character 2: this escape is not supported"),
    "a lone backslash": (_regex("\\"), "character 2: this escape is not supported"),
    "a possessive quantifier": (_regex("a*+"), "character 3: a quantifier must follow what it repeats"),
    "a quantifier at the start": (_regex("*"), "character 1: a quantifier must follow what it repeats"),
    "an anchor inside": (_regex("a^b"), "character 2: anchors are supported only at the ends"),
    "a brace that counts nothing": (_regex("a{,3}"), 'character 2: "{" must be written "\\{" here'),
    "counts out of order": (_regex("a{3,2}"), "character 2: the bounds of a repetition are out of order"),
    "a count of a billion": (_regex("a{999999999}"), "character 2: a repetition may count to 1000 at most"),
    "an explosion": (_regex("(a{1000}){1000}"), "pattern: the guide is too large"),
    "counting what stalls the engine": (_regex(".{0,1000}"), "pattern: the guide counts too far"),
    "repeating what may be empty": (_regex("(a*b?)*"), "character 7: what is repeated here may be empty"),
    "a text that may belong anywhere": (_regex("(?:[a-z]+ )*" * 60), "pattern: too ambiguous"),
    "deep groups": (_regex("(" * 5000), "character 66: groups nest deeper than 64"),
    "many elements": (_regex("a?" * 30_000), "character 8001: more than 4000 elements"),
    "U+0000": (_regex("a\0b"), "character 3: U+0000, surrogates"),
    "half a surrogate pair, written out": (_regex(r"\ud800"), "character 7: U+0000, surrogates"),
    "half a surrogate pair": (_regex("a\ud800"), "character 2: half of a surrogate pair stands alone"),
}

GRAMMARS = {
    "no grammar": (_ebnf("not a grammar"), 'character 1: expected a rule, "name ::= ..."'),
    "an empty text": (_ebnf(""), 'grammar: no rule is named "root"'),
    "no root": (_ebnf('a ::= "b"'), 'grammar: no rule is named "root"'),
    "a missing rule": (_ebnf('root ::= "a"\n  missing'), 'line 2, character 3: there is no rule "missing"'),
    "a rule twice": (_ebnf('root ::= "a"\nroot ::= "b"'), 'line 2, character 1: a second rule "root"'),
    "an open literal": (_ebnf('root ::= "a'), "character 12: expected '\"'"),
    "a literal over two lines": (_ebnf('root ::= "a\nb"'), "line 1, character 12: expected '\"'"),
    "an empty alternative": (_ebnf('root ::= "a" | '), 'character 16: expected "...", [...], (...) or the name of a rule'),
    "an unknown escape": (_ebnf(r'root ::= "\q"'), "character 12: this escape is not supported"),
    "xgrammar's macros": (_ebnf('root ::= TagDispatch(("a", root))'), "character 26: expected"),
    "xgrammar's lookahead": (_ebnf('root ::= "a" (="b")'), "character 15: expected"),
    "left recursion": (_ebnf('root ::= root "a" | "b"'), "character 1: this begins with itself"),
    "hidden left recursion": (_ebnf('root ::= a root | "b"\na ::= "x"?'), "line 1, character 1: this begins with itself"),
    "a circle of rules": (_ebnf('root ::= a | "c"\na ::= b\nb ::= a | root'), "this begins with itself"),
    "a rule that never ends": (_ebnf('root ::= "b" | a\na ::= "x" a'), "line 2, character 1: no finite answer conforms to this"),
    "repeating what may be empty": (_ebnf('root ::= (a){100} "c"\na ::= "b"?'), "line 1, character 13: what is repeated here may be empty"),
    "an explosion": (_ebnf("root ::= a{999}\na ::= b{999}\nb ::= [a-z]{999}"), "the guide counts too far"),
    "deep groups": (_ebnf("root ::= " + "(" * 5000), "character 75: groups nest deeper than 64"),
}

POISON = {
    f"{kind}: {name}": case
    for kind, table in (("schema", SCHEMAS), ("regex", REGEXES), ("grammar", GRAMMARS))
    for name, case in table.items()
}

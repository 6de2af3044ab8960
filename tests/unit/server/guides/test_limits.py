"""How far guides may go: what stands at a limit compiles, and the next step is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest

from server.engine.base import Guide, GuideKind, RequestRefused
from server.guides import compile_guide

REGEX, GRAMMAR, SCHEMA = GuideKind.REGEX, GuideKind.EBNF_GRAMMAR, GuideKind.JSON_SCHEMA


def _nest(levels: int) -> str:
    schema: Any = {}
    for _ in range(levels):
        schema = {"items": schema}
    return json.dumps(schema)


def _chain(rules: int) -> str:
    return "root ::= r1" + "".join(f'\nr{number} ::= "a" r{number + 1}' for number in range(1, rules - 1)) + f'\nr{rules - 1} ::= "b"'


LIMITS = [
    ("free text is counted to 100", SCHEMA, '{"maxLength":100}', '{"maxLength":101}'),
    (
        "lengths of several texts are added, but for those that end alike",
        SCHEMA,
        '{"anyOf":[{"items":{"maxLength":100}},{"maxLength":60}]}',
        '{"anyOf":[{"maxLength":60},{"pattern":"^[^a]{0,41}$"}]}',
    ),
    ("letters are counted to 400", REGEX, "[a-z]{400}", "[a-z]{401}"),
    ("digits are counted to 1000", REGEX, r"\d{1000}", r"\d{1001}"),
    ("a list may have 900 items", SCHEMA, '{"items":{"const":1},"maxItems":900}', '{"items":{"const":1},"maxItems":1000}'),
    ("schemas nest 63 deep", SCHEMA, _nest(63), _nest(64)),
    ("groups of a regex nest 64 deep", REGEX, "(x" * 64 + ")?" * 64, "(x" * 65 + ")?" * 65),
    ("groups of a grammar nest 64 deep", GRAMMAR, 'root ::= "a"' + '("x" |[yz] ' * 64 + ")*" * 64, "root ::= " + "(" * 65),
    ("fifteen letters may each be left out", REGEX, "[a-z]?" * 15, "[a-z]?" * 16),
    ("a grammar has 1000 rules", GRAMMAR, _chain(1000), _chain(1001)),
]


@pytest.mark.parametrize(("kind", "within", "beyond"), [pytest.param(*case, id=name) for name, *case in LIMITS])
def test_limits(kind: GuideKind, within: str, beyond: str) -> None:
    """The first compiles, the second is refused; neither recurses too deep or takes noticeable time."""
    assert "root ::= " in compile_guide(Guide(kind, within))
    with pytest.raises(RequestRefused):
        compile_guide(Guide(kind, beyond))


def test_what_follows_a_repetition_is_written_once() -> None:
    """Otherwise a thousand ways to reach a long ending would be a thousand copies of it."""
    ending = "x" * 3000
    assert compile_guide(Guide(REGEX, r"\d{0,900}" + ending)).count(ending) == 1
    assert len(compile_guide(Guide(REGEX, r"\d{0,900}" + ending))) < 40_000


def test_what_ends_alike_is_written_once() -> None:
    """Lengths and decimals of many fields share their ends, so a schema of twenty different bounds is no large one."""
    numbers = {f"p{it}": {"type": "number", "minimum": it, "maximum": 100 * it + 50} for it in range(20)}
    texts = {f"t{it}": {"type": "string", "maxLength": 80 + it} for it in range(10)}
    assert compile_guide(Guide(SCHEMA, json.dumps({"properties": numbers | texts}))).count("\n") < 300

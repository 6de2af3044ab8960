"""Strings of which a schema wants several things: a pattern that matches anywhere, a format, a length."""

from __future__ import annotations

import json
import re
from random import Random
from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from server.engine.base import GuideKind, RequestRefused
from tests.budget import examples
from tests.unit.server.guides.derivation import Writer, compile_rules, matches
from tests.unit.server.guides.test_regex import PATTERNS

ZOD_DATE = (
    r"(?:(?:\d\d[2468][048]|\d\d[13579][26]|\d\d0[48]|[02468][048]00|[13579][26]00)-02-29|\d{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12]\d|3[01])"
    r"|(?:0[469]|11)-(?:0[1-9]|[12]\d|30)|(?:02)-(?:0[1-9]|1\d|2[0-8])))"
)
ZOD = {
    "email": (
        r"^(?!\.)(?!.*\.\.)([A-Za-z0-9_'+\-\.]*)[A-Za-z0-9_+-]@([A-Za-z0-9][A-Za-z0-9\-]*\.)+[A-Za-z]{2,}$",
        ["ann@example.com", "a.b+c@x-y.example.museum"],
        ["a..b@example.com", ".a@example.com", "a.@example.com", "a@b", "é@example.com"],
    ),
    "uuid": (
        r"^([0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[1-8][0-9a-fA-F]{3}-[89abAB][0-9a-fA-F]{3}-[0-9a-fA-F]{12}"
        r"|00000000-0000-0000-0000-000000000000|ffffffff-ffff-ffff-ffff-ffffffffffff)$",
        ["f81d4fae-7dec-11d0-a765-00a0c91e6bf6", "00000000-0000-0000-0000-000000000000"],
        ["f81d4fae-7dec-01d0-a765-00a0c91e6bf6", "f81d4fae"],
    ),
    "date": (f"^{ZOD_DATE}$", ["2026-12-01", "2024-02-29"], ["2026-02-29", "2026-13-01"]),
    "date-time": (
        rf"^{ZOD_DATE}T(?:(?:[01]\d|2[0-3]):[0-5]\d(?::[0-5]\d(?:\.\d+)?)?(?:Z))$",
        ["2026-12-01T06:16:03Z", "2026-12-01T06:16:03.5Z"],
        ["2026-12-01", "2026-12-01T24:00:00Z"],
    ),
    "cuid": (r"^[cC][^\s-]{8,}$", ["cjld2cjxh0000"], ["cjld2cj", "xjld2cjxh0000"]),
    "url": (r"^https?:\/\/", ["https://example.com/a?b=c#d"], ["ftp://example.com"]),
}


@pytest.mark.parametrize("name", ZOD)
def test_a_pattern_beside_its_format_as_zod_writes_them(name: str) -> None:
    """Both hold; a format that is not in the table says nothing more than the pattern."""
    pattern, answers, others = ZOD[name]
    schema = {"type": "string", "format": name, "pattern": pattern}
    rules = compile_rules(GuideKind.JSON_SCHEMA, json.dumps(schema))
    for text in answers:
        assert re.search(pattern, text), text
        assert matches(rules, json.dumps(text)), text
    assert not any(matches(rules, json.dumps(text, ensure_ascii=False)) for text in others)
    for seed in range(20):
        jsonschema.validate(json.loads(Writer(rules, Random(seed)).write()), schema)


ANCHORS = st.tuples(st.sampled_from(["", "^"]), PATTERNS, st.sampled_from(["", "$"])).map("".join)
TEXTS = st.text(alphabet="ab0é.-\\ \n", max_size=6)


@settings(max_examples=examples(4), deadline=None)
@given(pattern=st.lists(ANCHORS, min_size=1, max_size=2).map("|".join), text=TEXTS, most=st.none() | st.integers(0, 6))
def test_a_pattern_matches_anywhere_as_in_python(pattern: str, text: str, most: int | None) -> None:
    """With anchors and without, alone and beside a greatest length."""
    schema: dict[str, Any] = {"pattern": pattern} | ({} if most is None else {"maxLength": most})
    wanted = re.search(pattern.replace("$", r"\Z"), text, re.ASCII) is not None and (most is None or len(text) <= most)
    try:
        rules = compile_rules(GuideKind.JSON_SCHEMA, json.dumps(schema))
    except RequestRefused as refused:
        assert not wanted or "may be empty" in str(refused) or "too" in str(refused)
        return
    assert matches(rules, json.dumps(text, ensure_ascii=False)) == wanted

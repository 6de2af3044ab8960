"""Guided decoding: compiles what callers write to the one grammar dialect that engines are given.

Engines cannot be trusted with a caller's schema, regex or grammar. One that OpenVINO GenAI does not accept makes `step()` raise, and the
pipeline never works again, for anybody; some that it does accept take seconds a step; and where it accepts a schema it allows blanks
without end, in which a small model loses itself. So a guide passes four stages here, and what is not understood is refused:

1. It is parsed (`json_schema`, `regex`, `ebnf`) into rules of a few kinds of node (`grammar`). Nothing is passed on as text.
2. The rules are checked (`checks`): each describes something finite, and none begins with itself.
3. Repetitions are unrolled (`unrolling`), and what the result will cost the engine is counted (`limits`, `checks`).
4. The rules are written (`rendering`), with names and escapes of our own.

So that an answer always conforms, a grammar may describe less than the guide allows, never more; `json_schema` and `regex` say where.
"""

from __future__ import annotations

from functools import lru_cache

from server.engine.base import Guide, GuideKind
from server.guides.checks import check_overlap, check_rules
from server.guides.ebnf import parse_ebnf
from server.guides.grammar import ROOT, Rule
from server.guides.json_schema import compile_any_object, compile_schema
from server.guides.limits import MAX_BYTES
from server.guides.refusal import refuse
from server.guides.regex import parse_regex
from server.guides.rendering import render_rules
from server.guides.unrolling import unroll_rules


@lru_cache(maxsize=256)
def compile_guide(guide: Guide) -> str:
    """The guide as a grammar in xgrammar's EBNF, whose root rule is `root`.

    Raises:
        RequestRefused: "guided_decoding_guide: PLACE: WHAT", where PLACE is a JSON pointer, a position or a rule.
    """
    rules = _parse_guide(guide)
    check_rules(rules)
    unrolled = unroll_rules(rules)
    check_overlap(unrolled)
    return render_rules(unrolled)


def _parse_guide(guide: Guide) -> dict[str, Rule]:
    _check_text(guide.text)
    match guide.kind:
        case GuideKind.JSON:
            return compile_any_object()
        case GuideKind.JSON_SCHEMA:
            return compile_schema(guide.text)
        case GuideKind.REGEX:
            return {ROOT: Rule(parse_regex(guide.text), "pattern")}
        case GuideKind.EBNF_GRAMMAR:
            return parse_ebnf(guide.text)


def _check_text(text: str) -> None:
    try:
        size = len(text.encode())
    except UnicodeEncodeError as error:
        raise refuse(f"character {error.start + 1}", "half of a surrogate pair stands alone") from None
    if size > MAX_BYTES:
        raise refuse("the whole", f"larger than {MAX_BYTES // 1024} KiB")

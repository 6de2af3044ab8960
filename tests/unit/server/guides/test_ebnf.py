"""Answers guided by a caller's grammar, which is read and written anew."""

from __future__ import annotations

import pytest

from server.engine.base import Guide, GuideKind
from server.guides import compile_guide
from tests.unit.server.guides.derivation import compile_rules, matches

LIST = """
# A list of pairs.
root ::= "{" pair ("," pair)* "}"   # the whole
pair ::=
    name ":" ( "yes"
             | "no" )?
name ::= [a-z]{1,3}
"""
CASES: list[tuple[str, list[str], list[str]]] = [
    ('root ::= "yes" | "no"', ["yes", "no"], ["", "yesno"]),
    (LIST, ["{a:yes}", "{ab:,c:no}"], ["{}", "{abcd:}", "{a:yes,}"]),
    ('root ::= "a" root "b" | ()', ["", "ab", "aaabbb"], ["aab", "ba"]),
    ('root ::= sum\nsum ::= [0-9]+ ("+" sum)?', ["1", "12+3+45"], ["1+", "+1"]),
    (r'root ::= "\"\\\n\t\u00e9\x41\U0001F600\/"', ['"\\\n\té\x41😀/'], []),
    (r'root ::= [^"\\\x00-\x1f] [\]\-^] [\d]', ["a]1", "é^0"], ['"]1', "a\\1", "\n]1"]),
    ('root ::= "a"{2,} "b"{0,2} "c"{1}', ["aac", "aaabbc"], ["ac", "aacc", "aabbbc"]),
    ("true ::= root-2.x\nroot ::= true\nroot-2.x ::= ((([x])))", ["x"], []),
    ('root::="a"|"b"', ["a", "b"], []),
]


@pytest.mark.parametrize(("grammar", "answers", "others"), CASES)
def test_texts_of_a_grammar(grammar: str, answers: list[str], others: list[str]) -> None:
    """Each answer can be written, and no other text can."""
    rules = compile_rules(GuideKind.EBNF_GRAMMAR, grammar)
    for text in answers:
        assert matches(rules, text), text
    for text in others:
        assert not matches(rules, text), text


def test_nothing_of_the_callers_text_is_passed_on() -> None:
    """Names, comments and layout go; what the engine reads is written by us, in five constructs."""
    text = compile_guide(Guide(GuideKind.EBNF_GRAMMAR, '# note\nroot ::= my_rule "é"\nmy_rule ::= [^b-\\U0010ffff]{1,2}'))
    assert text.splitlines() == [
        r'root ::= r1 "\u00e9"',
        r'r3 ::= [\u0001-a] | ""',
        r"r1 ::= [\u0001-a] r3",
    ]


def test_any_json_object() -> None:
    """The guide that needs no text: one object, compact, of any depth."""
    rules = compile_rules(GuideKind.JSON, "")
    assert matches(rules, '{"a":[{},{"b":null}],"c":"\\n"}')
    assert not matches(rules, "[]")
    assert not matches(rules, '{"a" :1}')

"""Answers guided by a regex: exactly those that Python's re matches as a whole, where dialects agree."""

from __future__ import annotations

import re
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from server.engine.base import GuideKind, RequestRefused
from tests.budget import examples
from tests.unit.server.guides.derivation import Writer, compile_rules, matches

CASES: list[tuple[str, list[str], list[str]]] = [
    ("", [""], ["a"]),
    ("abc", ["abc"], ["ab", "abcd"]),
    ("^a$|^bc$", ["a", "bc"], ["abc"]),
    ("a|b|", ["a", "b", ""], ["ab"]),
    ("(a|b)c", ["ac", "bc"], ["c"]),
    ("(?:ab)+?c*?", ["ab", "ababcc"], ["c", "aab"]),
    ("a{2}b{1,}c{0,2}d{0}", ["aab", "aabbbcc"], ["aabd", "aabccc", "ab"]),
    (r"\d{3}-\d{4}", ["555-1234"], ["٥٥٥-1234"]),
    (r"[\w.-]+@\w+", ["a.b-c@d"], ["a b@c"]),
    (r"[^\W\d]", ["a", "_"], ["1", "é"]),
    (r"[^\s]\S", ["ab", "é☃"], ["a ", "\u00a0b"]),
    (r"\s", [" ", "\n"], ["\u00a0"]),
    (".", ["a", "é", "😀"], ["\n", "\r", "\u2028", ""]),
    (r"[\]^-]{2}", ["]^", "--"], ["a"]),
    (r"[a\-z][!-/]", ["-!", "a/"], ["b!"]),
    (r"\x41\u00e9\U0001F600\t\$\^\.\*\\\/", ["Aé😀\t$^.*\\/"], []),
    (r"[\u0000-\x1f]", ["\n", "\x01"], ["a"]),
    ('"\\\\', ['"\\'], []),
    ("(((a)))(b)?", ["a", "ab"], []),
]


@pytest.mark.parametrize(("pattern", "answers", "others"), CASES)
def test_texts_of_a_regex(pattern: str, answers: list[str], others: list[str]) -> None:
    """Each answer can be written, and no other text can."""
    rules = compile_rules(GuideKind.REGEX, pattern)
    for text in answers:
        assert re.fullmatch(pattern, text)
        assert matches(rules, text), text
    for text in others:
        assert not matches(rules, text), text


ATOMS = st.sampled_from(["a", "b", "0", "é", ".", "-", r"\.", r"\d", r"\w", r"\D", "[ab]", "[^a]", "[a-c0]", r"[^\d]", r"[\w-]", " "])
QUANTIFIERS = st.sampled_from(["", "", "", "?", "*", "+", "{2}", "{0,2}", "{1,3}?", "{1,}"])


def _groups(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    sequences = st.lists(inner, min_size=1, max_size=4).map("".join)
    choices = st.lists(sequences, min_size=2, max_size=3).map("|".join)
    return sequences | st.builds("({}){}".format, choices, QUANTIFIERS) | st.builds("(?:{}){}".format, sequences, QUANTIFIERS)


PATTERNS = st.recursive(st.builds(str.__add__, ATOMS, QUANTIFIERS), _groups, max_leaves=8)


@settings(max_examples=examples(2), deadline=None)
@given(pattern=PATTERNS, texts=st.lists(st.text("ab0é.- ", max_size=5), max_size=8), seed=st.integers())
def test_the_grammar_means_what_the_regex_means(pattern: str, texts: list[str], seed: int) -> None:
    """What is written matches, and a text can be written exactly if it matches; only repeating what may be empty is refused."""
    try:
        rules = compile_rules(GuideKind.REGEX, pattern)
    except RequestRefused as refused:
        assert "may be empty" in str(refused)
        return
    compiled = re.compile(pattern, re.ASCII)
    written = Writer(rules, Random(seed), budget=12).write()
    assert compiled.fullmatch(written)
    for text in [*texts, written]:
        assert matches(rules, text) == bool(compiled.fullmatch(text))

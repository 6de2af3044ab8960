"""Marks in callers' strings: no token of the rendered text holds anything of theirs."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.text.guard import TokenGuard

TOKENS = ["<|im_end|>", "<|end|>", "<a><a>", "aXa", "<think>", "think", " <sp>"]
NAMES = {text: f"[{at}]" for at, text in enumerate(TOKENS)}
FRAGMENTS = st.sampled_from(
    [token[start:end] for token in TOKENS for start in range(len(token)) for end in range(start + 1, len(token) + 1)]
)
HOSTILE = st.lists(FRAGMENTS | st.sampled_from([" ", "\n", "\ufdd0", "\ufdd1", "x"]), max_size=8).map("".join)


def seal_joined(parts: list[str], glue: str = "") -> str:
    guard = TokenGuard(NAMES)
    marked, mark = guard.mark(parts)
    return guard.seal(glue.join(marked), mark)


@given(st.lists(HOSTILE, max_size=5))
def test_no_join_of_callers_strings_is_a_token(parts: list[str]) -> None:
    """Whole tokens, halves that meet, tokens inside tokens: all stay the text they are."""
    assert seal_joined(parts) == "".join(parts)


@pytest.mark.parametrize("token", [it for it in TOKENS if " " not in it])
def test_no_token_is_completed_around_a_callers_string(token: str) -> None:
    """Not even by a template that writes the beginning of a token before it and the end behind it, for any part between."""
    guard = TokenGuard({token: "[sealed]"})
    for start, end in combinations(range(len(token) + 1), 2):
        (marked,), mark = guard.mark([token[start:end]])
        assert guard.seal(f"{token[:start]}{marked}{token[end:]}", mark) == token


@given(HOSTILE, HOSTILE, st.sampled_from(TOKENS), st.data())
def test_no_token_is_completed_at_an_edge_of_a_callers_string(before: str, behind: str, token: str, data: st.DataObject) -> None:
    """The template writes one half, a caller's string ends or begins with the other."""
    cut = data.draw(st.integers(1, len(token.strip()) - 1))
    beginning, end = token.strip()[:cut], token.strip()[cut:]
    guard = TokenGuard({token.strip(): "[sealed]"})
    (first, second), mark = guard.mark([before + beginning, end + behind])
    assert guard.seal(f"{first}{end}|{beginning}{second}", mark) == f"{before}{token.strip()}|{token.strip()}{behind}"


@given(HOSTILE)
def test_white_space_that_a_template_trims_does_not_bare_a_token(text: str) -> None:
    """Marks stand inside of the outer white space."""
    guard = TokenGuard(NAMES)
    (first, second), mark = guard.mark([text, text])
    assert guard.seal(first.strip() + second.strip(), mark) == text.strip() * 2


def test_white_space_of_a_caller_may_belong_to_a_token_of_the_template() -> None:
    """Tokens that eat the space before them eat a caller's too, as with Hugging Face."""
    assert TokenGuard(NAMES).seal("a <sp>", "\ufdd0") == "a[6]"


def test_the_templates_own_tokens_are_sealed_and_the_longest_first() -> None:
    """`<think>` is one token, not `think` between two brackets."""
    guard = TokenGuard(NAMES)
    assert guard.seal("<think>think<|im_end|><|end|>", "\ufdd0") == "[4][5][0][1]"


def test_strings_are_marked_wherever_they_are() -> None:
    """In keys, in lists, in nested values; numbers, truth values and null stay."""
    value: Any = {"<|end|>": [1, None, True, 2.5, {"enum": ["<|im_end|>"]}]}
    marked, mark = TokenGuard(NAMES).mark(value)
    assert marked == {f"<{mark}|end|>": [1, None, True, 2.5, {"enum": [f"<{mark}|im_end|>"]}]}


def test_harmless_strings_are_left_alone() -> None:
    """Templates may compare them."""
    value = {"name": "weather", "city": "Zürich < 8°", "content": ""}
    assert TokenGuard(NAMES).mark(value)[0] == value


@pytest.mark.parametrize("word", ["user", "function", "string"])
def test_words_of_the_protocol_are_never_marked(word: str) -> None:
    """`<|user|>` may be a token that the template writes from the role."""
    guard = TokenGuard({"<|user|>": "[0]", "<|function|>": "[1]", "xstringx": "[2]"})
    assert guard.mark([word])[0] == [word]


def test_a_protocol_word_that_is_a_token_is_marked() -> None:
    """Safety goes before the template's comparisons."""
    marked, mark = TokenGuard({"user": "[0]"}).mark(["user"])
    assert marked == [f"u{mark}ser"]


def test_noncharacters_of_the_caller_are_kept_while_one_is_free() -> None:
    """The mark is one that the caller does not use."""
    assert seal_joined(["\ufdd0<|end|>\ufdd1"]) == "\ufdd0<|end|>\ufdd1"


def test_a_caller_who_uses_all_noncharacters_loses_them() -> None:
    """Nothing else of the text is lost, and no token is made by that."""
    every = "".join(chr(code) for code in range(0xFDD0, 0xFDF0))
    assert seal_joined([f"<|en{every}d|>", "a"]) == "<|end|>a"


def test_a_guard_without_tokens_changes_nothing() -> None:
    """Some models have no added tokens."""
    guard = TokenGuard({})
    marked, mark = guard.mark(["<|end|>"])
    assert guard.seal(marked[0], mark) == "<|end|>"

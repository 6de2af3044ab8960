"""Every character that a guide may hold comes out of the real engine as it went in, whatever follows it.

The engine reads a grammar, prints it and reads that again, so only the engine itself can tell what a grammar's text means to it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import cycle, pairwise
from pathlib import Path

import pytest

from router.model import GuideKind as AskedKind
from router.text.call_format import HERMES
from router.text.tools import Offer, guide_call
from router.tools import Tool
from server.engine.base import Guide, GuideKind
from server.engine.openvino import OpenVinoEngine
from server.guides import compile_guide
from server.options import EngineOptions
from tests.e2e.pipeline import Pipeline

pytestmark = [pytest.mark.model, pytest.mark.timeout(600)]

HEX = "0123456789abcdefABCDEF"
NO_TOKENS = {0x4, 0x6, 0x13, 0x14, 0x16, 0x1D}
"""Characters that the default model has no token for: it can write none of them."""
CHARACTERS = [chr(code) for code in range(0x1, 0x180) if code not in NO_TOKENS] + list("\u2028\ud7ff\ue000\uffff\U00010000😀\U0010ffff")
TOKENS = 4
"""The most that a character takes."""
TOGETHER = 12
"""So many characters or classes are one guide."""


@pytest.fixture(scope="module")
def fast(folder: Path) -> Iterator[Pipeline]:
    """An engine that need not answer the same in every batch, and so answers twice as fast."""
    engine = OpenVinoEngine(EngineOptions(folder, "fast", profile="fast"))
    yield Pipeline(engine)
    engine.close()


def test_every_character_stands_before_a_hexadecimal_digit(fast: Pipeline) -> None:
    """Each stands before one; the digits take turns."""
    pairs = [character + digit for character, digit in zip(CHARACTERS, cycle(HEX), strict=False)]
    texts = ["".join(some) for some in _groups(pairs)]
    assert _write(fast, texts) == texts


@pytest.mark.slow  # 8,448 pairs; above is one for each character
def test_every_character_stands_before_every_hexadecimal_digit(fast: Pipeline) -> None:
    """One literal for each character holds it before every digit."""
    texts = ["".join(character + digit for digit in HEX) for character in CHARACTERS]
    assert _write(fast, texts) == texts


def test_every_character_stands_in_a_class_with_hexadecimal_digits(fast: Pipeline) -> None:
    """Alone and as the end of a range, with a digit before and behind it: an answer has only what the class holds."""
    classes = [character + "af" for character in CHARACTERS] + [one + other + "05" for one, other in pairwise(CHARACTERS)]
    groups = _groups(classes)
    guides = ["".join(f"[{_spell(members)}]" for members in group) for group in groups]
    for group, text in zip(groups, _answer(fast, guides, TOGETHER), strict=True):
        assert len(text) == len(group), (group, text)
        assert all(character in members for character, members in zip(text, group, strict=True)), (group, text)


WORDS = ["sécurité", "Größe", "müde", "naïf", 'a"b\\é0\n\x01b\x7fc', "\\xe9c", "\\u00e9c", "日本é日a", "😀a\U0010ffff0"]


def test_words_of_every_kind_of_guide_come_out_unchanged(fast: Pipeline) -> None:
    """Values and names of a schema, a pattern, a regex, a grammar, and a forced call's tool arguments."""
    wanted: dict[Guide, str] = {}
    for word in WORDS:
        value = json.dumps(word, ensure_ascii=False)
        holds_one = {"type": "object", "properties": {word: {"enum": [word]}}, "required": [word]}
        call = guide_call(Offer((Tool("t", parameters=json.dumps(holds_one)),), ("t",)), HERMES)
        assert call.kind is AskedKind.JSON_SCHEMA
        wanted |= {
            Guide(GuideKind.JSON_SCHEMA, json.dumps(holds_one)): f"{{{value}:{value}}}",
            Guide(GuideKind.JSON_SCHEMA, json.dumps({"pattern": f"^{_spell(word)}$"})): value,
            Guide(GuideKind.REGEX, _spell(word)): word,
            Guide(GuideKind.EBNF_GRAMMAR, f'root ::= "{_spell(word)}"'): word,
            Guide(GuideKind.JSON_SCHEMA, call.text): f'{{"name":"t","arguments":{{{value}:{value}}}}}',
        }
    answers = fast.answer([compile_guide(guide) for guide in wanted], 120)
    assert answers == list(wanted.values())


def _write(pipeline: Pipeline, texts: list[str]) -> list[str]:
    """Each text's answer under a regex that is exactly this text."""
    return _answer(pipeline, list(map(_spell, texts)), max(map(len, texts)))


def _answer(pipeline: Pipeline, regexes: list[str], characters: int) -> list[str]:
    return pipeline.answer([compile_guide(Guide(GuideKind.REGEX, regex)) for regex in regexes], characters * TOKENS)


def _spell(text: str) -> str:
    return "".join(f"\\U{ord(character):08x}" for character in text)


def _groups(items: list[str]) -> list[list[str]]:
    return [items[at : at + TOGETHER] for at in range(0, len(items), TOGETHER)]

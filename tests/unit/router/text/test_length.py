"""Prompts that cannot fit are refused before they are tokenized, or after little of it; what fits never is."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.text.length import TooManyTokens, longest_token
from router.text.tokenizer import Tokenizer
from tests.models import build_chatml_model

BYTES = [bytes((byte,)) for byte in range(256)]
KINDS: list[tuple[Any, Sequence[bytes], int | None]] = [
    (None, [*BYTES, b"four"], 4),
    ({"type": "NFC"}, [*BYTES, b"four"], 16),
    ({"type": "Sequence", "normalizers": []}, BYTES, 1),
    ({"type": "Sequence", "normalizers": [{"type": "Prepend"}, {"type": "Replace", "pattern": {"String": " "}, "content": "_"}]}, BYTES, 1),
    ({"type": "Replace", "pattern": {"String": "  "}, "content": " "}, BYTES, None),
    ({"type": "Replace", "pattern": {"String": " "}, "content": ""}, BYTES, None),
    ({"type": "Sequence", "normalizers": [{"type": "NFC"}, {"type": "Strip"}]}, BYTES, None),
    ({"type": "Precompiled"}, BYTES, None),
    (None, BYTES[1:], None),
]


@pytest.mark.parametrize(("normalizer", "tokens", "longest"), KINDS)
def test_how_much_a_token_stands_for_is_known_or_not_assumed(normalizer: Any, tokens: Sequence[bytes], longest: int | None) -> None:
    """A normalizer that may leave out anything, and bytes that no token spells, leave nothing to go by."""
    assert longest_token({"normalizer": normalizer}, tokens) == longest


class CountingTokenizer(Tokenizer):
    """Counts the characters that it encodes."""

    counted = 0

    def _encode(self, text: str) -> list[int]:
        self.counted += len(text)
        return super()._encode(text)


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> CountingTokenizer:
    made = CountingTokenizer.load(build_chatml_model(tmp_path_factory.mktemp("chatml")))
    assert isinstance(made, CountingTokenizer)
    return made


@given(st.text(alphabet="a é🌊\n<|im_start>", max_size=300), st.integers(1, 30))
def test_no_text_that_fits_is_refused(chatml_path: Path, part: str, times: int) -> None:
    """Whatever it is made of."""
    tokenizer = Tokenizer.load(chatml_path)
    text = part * times
    tokens = len(tokenizer.encode_text(text)) if text else 1
    tokenizer.context = max(1, tokens)
    tokenizer.require_room(len(text))
    assert len(tokenizer.encode_text(text)) <= tokenizer.context


@pytest.fixture(scope="module")
def chatml_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_chatml_model(tmp_path_factory.mktemp("small"))


@pytest.mark.parametrize("text", ["a", " ", "\n", "<|im_start|>", "🌊", "\ud800"])
def test_a_long_text_is_counted_until_it_is_certain(tokenizer: CountingTokenizer, text: str) -> None:
    """Of four megabytes little more is read than the context holds."""
    tokenizer.counted = 0
    with pytest.raises(TooManyTokens) as refused:
        tokenizer.encode_text(text * 4_000_000)
    assert tokenizer.context < refused.value.tokens
    assert tokenizer.counted <= 2 * 16_384

"""Reading a GGUF: the tokenizer it holds, the settings it states, and its tensors in types the engine reads exactly."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf import GGUFReader, quants
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer

from server.assets.folder import AssetError
from server.assets.gguf import (
    build_tokenizer,
    describe_generation,
    describe_model,
    describe_tokenizer,
    encode_tensors,
    needs_encoding,
    read_fields,
)
from tests.gguf_files import CONTEXT, CONTROLS, TEMPLATE, USER_DEFINED, random_values, write_gguf

PRE_TOKENIZERS = ("smollm", "qwen2")
TEXTS = st.lists(st.one_of(st.text(), st.sampled_from([*CONTROLS, *USER_DEFINED, "hello 12\n\n", "\r\n", "é"]))).map("".join)


@pytest.fixture(scope="module")
def fields(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return read_fields(GGUFReader(write_gguf(tmp_path_factory.mktemp("gguf") / "tiny.gguf", {})))


@pytest.fixture(scope="module", params=PRE_TOKENIZERS)
def tokenizer(request: pytest.FixtureRequest, fields: dict[str, Any]) -> Tokenizer:
    return build_tokenizer(fields | {"tokenizer.ggml.pre": request.param})


@given(text=TEXTS)
def test_tokenizer_gives_back_any_text(tokenizer: Tokenizer, text: str) -> None:
    """Decoding the ids of a text yields that text, control tokens and all."""
    ids = tokenizer.encode(text, add_special_tokens=False).ids
    assert tokenizer.decode(ids, skip_special_tokens=False) == text


def test_tokenizer_keeps_the_ids_of_the_file(tokenizer: Tokenizer, fields: dict[str, Any]) -> None:
    """Every token has the id of its place in the file, those added as whole words included."""
    tokens = fields["tokenizer.ggml.tokens"]
    assert tokenizer.get_vocab() == {text: id for id, text in enumerate(tokens)}


def test_only_control_tokens_are_special(tokenizer: Tokenizer) -> None:
    """Control tokens vanish from decoded text when asked; user-defined tokens are text and stay."""
    ids = tokenizer.encode("<|im_start|>hello<tool><|im_end|>").ids
    assert len(ids) == 4
    assert tokenizer.decode(ids) == "hello<tool>"


def test_no_space_is_put_before_a_text(tokenizer: Tokenizer) -> None:
    """The first word is the token without a space, as the engine has it."""
    assert tokenizer.encode("hello wor").tokens == ["hello", "Ġw", "or"]


def test_digits_are_never_merged(tokenizer: Tokenizer) -> None:
    """Both pre-tokenizers split numbers into digits, even where the vocabulary has the pair."""
    assert tokenizer.encode("12").tokens == ["1", "2"]


def test_characters_are_not_normalised(tokenizer: Tokenizer) -> None:
    """A letter with a combining accent keeps its own ids, although its composed form looks the same."""
    assert tokenizer.encode("e\u0301").ids != tokenizer.encode("\u00e9").ids


def test_settings_have_hugging_face_names(fields: dict[str, Any]) -> None:
    """The router finds context, vocabulary, template and end tokens where any Hugging Face folder has them."""
    config = describe_model(fields)
    assert config["model_type"] == "llama"
    assert config["max_position_embeddings"] == CONTEXT
    assert config["vocab_size"] == len(fields["tokenizer.ggml.tokens"])
    assert describe_tokenizer(fields) == {
        "chat_template": TEMPLATE,
        "bos_token": "<|im_start|>",
        "eos_token": "<|im_end|>",
    }


def test_end_of_turn_and_of_document_both_end_an_answer(fields: dict[str, Any]) -> None:
    """The file names one end token; a chat may end with the other as well."""
    assert describe_generation(fields) == {"bos_token_id": 1, "eos_token_id": [2, 0]}


@pytest.mark.parametrize("kind", ["Q4_1", "Q5_0"])
def test_encoded_values_stay_within_the_error_of_q8_0(tmp_path: Path, kind: str) -> None:
    """A value moves by at most half of its block's scale, and by the rounding of that scale to float16."""
    source = GGUFReader(write_gguf(tmp_path / "a.gguf", {f"{kind}.weight": random_values()}))
    encode_tensors(source, tmp_path / "b.gguf")
    (tensor,) = GGUFReader(tmp_path / "b.gguf").tensors
    before = quants.dequantize(source.tensors[0].data, source.tensors[0].tensor_type).reshape(-1, 32)
    after = quants.dequantize(tensor.data, tensor.tensor_type).reshape(-1, 32)
    largest = np.abs(before).max(axis=1, keepdims=True)
    assert tensor.tensor_type.name == "Q8_0"
    assert (np.abs(after - before) <= largest * (0.5 / 127 + 2**-11)).all()


@pytest.mark.parametrize("kind", ["Q4_0", "Q8_0", "F32"])
def test_tensors_the_engine_reads_are_copied_byte_for_byte(tmp_path: Path, kind: str) -> None:
    """Only what needs it is re-encoded: the rest of the file keeps its types, shapes and bytes."""
    tensors = {"Q4_1.weight": random_values(), f"{kind}.weight": random_values(rows=2)}
    source = GGUFReader(write_gguf(tmp_path / "a.gguf", tensors))
    encode_tensors(source, tmp_path / "b.gguf")
    before, after = source.tensors[1], GGUFReader(tmp_path / "b.gguf").tensors[1]
    assert (after.name, after.tensor_type, after.shape.tolist()) == (before.name, before.tensor_type, [64, 2])
    assert after.data.tobytes() == before.data.tobytes()


def test_encoding_keeps_the_metadata(tmp_path: Path, fields: dict[str, Any]) -> None:
    """Tokenizer and settings are the same after re-encoding, arrays and their element types included."""
    source = GGUFReader(write_gguf(tmp_path / "a.gguf", {"Q4_1.weight": random_values()}))
    encode_tensors(source, tmp_path / "b.gguf")
    encoded = GGUFReader(tmp_path / "b.gguf")
    assert read_fields(encoded) == read_fields(source)
    assert [field.types for field in encoded.fields.values()] == [field.types for field in source.fields.values()]


@pytest.mark.parametrize(("kind", "expected"), [("Q4_1", True), ("Q5_0", True), ("Q8_0", False), ("Q4_0", False)])
def test_only_some_types_need_encoding(tmp_path: Path, kind: str, expected: bool) -> None:
    """A file of types the engine reads as they are is left alone."""
    assert needs_encoding(GGUFReader(write_gguf(tmp_path / "a.gguf", {f"{kind}.w": random_values()}))) is expected


def test_unknown_architecture_is_refused(tmp_path: Path) -> None:
    """A model that the engine cannot run is refused with the list of those it can."""
    with pytest.raises(AssetError, match="'gemma3': use one of llama, qwen2, qwen3"):
        read_fields(GGUFReader(write_gguf(tmp_path / "a.gguf", {}, arch="gemma3")))


def test_unknown_pre_tokenizer_is_refused(fields: dict[str, Any]) -> None:
    """A guess would count tokens wrongly, so an unknown pre-tokenizer is an error."""
    with pytest.raises(AssetError, match="'gpt-4o': only 'smollm' and 'qwen2'"):
        build_tokenizer(fields | {"tokenizer.ggml.pre": "gpt-4o"})

"""Reading a GGUF file: its tokenizer and settings in Hugging Face form, its tensors in types the engine reads exactly.

The tokenizer is rebuilt from the file's own vocabulary and merges, with the pre-tokenizer that ``tokenizer.ggml.pre``
names, because the router counts tokens with it and must agree with the engine id for id. Two choices make that so: no
space is put before the text, and no Unicode normalisation is done, although Qwen's published tokenizer.json has NFC.

The engine cannot read Q5_0, and it rounds the minimum of every Q4_1 block to a 4-bit zero point, which raises SmolLM2's
perplexity from 44.1 to 56.9. Such tensors are dequantised and written again as Q8_0 (44.5). Formats of ggml-org/ggml.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType, GGUFReader, GGUFValueType, GGUFWriter, ReaderTensor, quants
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers

from server.assets.folder import AssetError

Fields: TypeAlias = Mapping[str, Any]

ARCHITECTURES = ("llama", "qwen2", "qwen3")
# Q4_K is rounded like Q4_1, but loses little (perplexity 24.2 against 23.7) and is a third faster than Q8_0.
KEPT_TYPES = frozenset({"F32", "F16", "BF16", "Q4_0", "Q8_0", "Q4_K", "Q6_K"})
CONTROL, USER_DEFINED = 3, 4
# A chat ends with its turn or with its document, whichever of the two the file calls "eos".
END_TOKENS = ("<|im_end|>", "<|endoftext|>")
QWEN_SPLIT = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
CONFIG_KEYS = {
    "context_length": "max_position_embeddings",
    "embedding_length": "hidden_size",
    "feed_forward_length": "intermediate_size",
    "block_count": "num_hidden_layers",
    "attention.head_count": "num_attention_heads",
    "attention.head_count_kv": "num_key_value_heads",
    "attention.layer_norm_rms_epsilon": "rms_norm_eps",
    "rope.freq_base": "rope_theta",
}


def read_fields(reader: GGUFReader) -> dict[str, Any]:
    """Return the file's metadata as plain Python values; raise `AssetError` for a model the engine cannot run."""
    fields = {key: field.contents() for key, field in reader.fields.items()}
    architecture, tokenizer = fields.get("general.architecture"), fields.get("tokenizer.ggml.model")
    if architecture not in ARCHITECTURES:
        raise AssetError("UNSUPPORTED_MODEL", f"architecture {architecture!r}: use one of {', '.join(ARCHITECTURES)}")
    if tokenizer != "gpt2":
        raise AssetError("UNSUPPORTED_MODEL", f"tokenizer {tokenizer!r}: only byte-level BPE ('gpt2') is read")
    return fields


def build_tokenizer(fields: Fields) -> Tokenizer:
    """Return the file's byte-level BPE tokenizer: no prefix space, no normalisation, control tokens are special."""
    tokens, types = fields["tokenizer.ggml.tokens"], fields["tokenizer.ggml.token_type"]
    merges = [(left, right) for left, _, right in (merge.partition(" ") for merge in fields["tokenizer.ggml.merges"])]
    tokenizer = Tokenizer(models.BPE({text: id for id, text in enumerate(tokens)}, merges))
    tokenizer.pre_tokenizer = _pre_tokenizer(fields.get("tokenizer.ggml.pre"))
    tokenizer.decoder = decoders.ByteLevel()
    for kind, is_special in ((CONTROL, True), (USER_DEFINED, False)):
        added = [text for text, its_kind in zip(tokens, types, strict=True) if its_kind == kind]
        tokenizer.add_tokens([AddedToken(text, special=is_special, normalized=False) for text in added])
    return tokenizer


def _pre_tokenizer(name: str | None) -> pre_tokenizers.PreTokenizer:
    split: pre_tokenizers.PreTokenizer
    if name == "smollm":
        split = pre_tokenizers.Digits(individual_digits=True)
    elif name == "qwen2":
        split = pre_tokenizers.Split(Regex(QWEN_SPLIT), behavior="isolated")
    else:
        raise AssetError("UNSUPPORTED_MODEL", f"pre-tokenizer {name!r}: only 'smollm' and 'qwen2' are known")
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=name == "smollm")
    return pre_tokenizers.Sequence([split, byte_level])


def describe_tokenizer(fields: Fields) -> dict[str, Any]:
    """Return ``tokenizer_config.json``: the chat template and the texts of the first and last token."""
    tokens = fields["tokenizer.ggml.tokens"]
    ids = {name: fields.get(f"tokenizer.ggml.{name}_token_id") for name in ("bos", "eos")}
    texts = {f"{name}_token": None if id is None else tokens[id] for name, id in ids.items()}
    return {"chat_template": fields.get("tokenizer.chat_template")} | texts


def describe_model(fields: Fields) -> dict[str, Any]:
    """Return ``config.json``: architecture, sizes and token ids under their Hugging Face names."""
    architecture = fields["general.architecture"]
    found = {name: fields.get(f"{architecture}.{key}") for key, name in CONFIG_KEYS.items()}
    return {
        "model_type": architecture,
        "vocab_size": len(fields["tokenizer.ggml.tokens"]),
        "bos_token_id": fields.get("tokenizer.ggml.bos_token_id"),
        "eos_token_id": fields.get("tokenizer.ggml.eos_token_id"),
    } | {name: value for name, value in found.items() if value is not None}


def describe_generation(fields: Fields) -> dict[str, Any]:
    """Return ``generation_config.json``: every token id that ends an answer, the file's own one first."""
    tokens = fields["tokenizer.ggml.tokens"]
    ends = [fields.get("tokenizer.ggml.eos_token_id")] + [tokens.index(text) for text in END_TOKENS if text in tokens]
    eos_token_id = list(dict.fromkeys(id for id in ends if id is not None))
    return {"bos_token_id": fields.get("tokenizer.ggml.bos_token_id"), "eos_token_id": eos_token_id}


def needs_encoding(reader: GGUFReader) -> bool:
    """Whether some tensor is of a type that the engine refuses or reads with a loss that matters."""
    return any(tensor.tensor_type.name not in KEPT_TYPES for tensor in reader.tensors)


def encode_tensors(reader: GGUFReader, target: Path) -> None:
    """Write the file again with every such tensor as Q8_0; all else is copied byte for byte.

    Q8_0 holds 32 values as int8 times one float16 scale, so a value moves by at most half a scale. Only one tensor is held
    in memory at a time: the types and sizes are written first, then the data.
    """
    writer = GGUFWriter(target, reader.fields["general.architecture"].contents())
    _copy_fields(reader, writer)
    for tensor in reader.tensors:
        kind = _target_type(tensor)
        shape = [int(size) for size in reversed(tensor.shape)]
        writer.add_tensor_info(tensor.name, shape, np.dtype(np.float32), _byte_count(tensor, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    for tensor in reader.tensors:
        writer.write_tensor_data(_encode_tensor(tensor))
    writer.close()


def _copy_fields(reader: GGUFReader, writer: GGUFWriter) -> None:
    # The reader's "GGUF.*" fields are the header; the architecture and the alignment are the writer's own.
    for key, field in reader.fields.items():
        if not key.startswith("GGUF.") and key not in ("general.architecture", "general.alignment"):
            element = field.types[1] if field.types[0] == GGUFValueType.ARRAY else None
            writer.add_key_value(key, field.contents(), field.types[0], element)


def _target_type(tensor: ReaderTensor) -> GGMLQuantizationType:
    return tensor.tensor_type if tensor.tensor_type.name in KEPT_TYPES else GGMLQuantizationType.Q8_0


def _byte_count(tensor: ReaderTensor, kind: GGMLQuantizationType) -> int:
    values, size = GGML_QUANT_SIZES[kind]
    count: int = tensor.n_elements // values * size
    return count


def _encode_tensor(tensor: ReaderTensor) -> np.ndarray[Any, Any]:
    data: np.ndarray[Any, Any] = tensor.data
    kind = _target_type(tensor)
    if kind != tensor.tensor_type:
        data = quants.quantize(quants.dequantize(data, tensor.tensor_type), kind)
    return data

"""GGUF files of a few kilobytes, with every byte as a token and a few words: of chosen tensors, or a whole model that answers nonsense."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from gguf import GGMLQuantizationType, GGUFWriter, LlamaFileType, TokenType, quants
from tokenizers import pre_tokenizers

CONTROLS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
USER_DEFINED = ("<tool>",)
MERGES = ("h e", "l l", "he ll", "hell o", "Ġ w", "o r", "Ġ t", "1 2")
TEMPLATE = "{{ messages[0].content }}"
CONTEXT = 128


def write_gguf(path: Path, tensors: Mapping[str, np.ndarray[Any, Any]], *, pre: str = "smollm", arch: str = "llama") -> Path:
    """Write a file with the given float32 tensors, each stored as the type that its name begins with (``Q4_1.weight``)."""
    writer = GGUFWriter(path, arch)
    writer.add_context_length(CONTEXT)
    writer.add_chat_template(TEMPLATE)
    _add_tokenizer(writer, pre)
    for name, values in tensors.items():
        kind = GGMLQuantizationType[name.split(".")[0]]
        writer.add_tensor(name, quants.quantize(values, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def write_tiny_llama(path: Path) -> Path:
    """Write a model of two layers with random weights and a context of 2048 tokens, which the engine loads and steps in no time."""
    writer = GGUFWriter(path, "llama")
    writer.add_context_length(2048)
    writer.add_embedding_length(_HIDDEN)
    writer.add_feed_forward_length(2 * _HIDDEN)
    writer.add_block_count(2)
    writer.add_head_count(2)
    writer.add_head_count_kv(1)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(10000.0)
    writer.add_rope_dimension_count(_HIDDEN // 2)
    writer.add_file_type(LlamaFileType.MOSTLY_F16)
    writer.add_chat_template(TEMPLATE)
    _add_tokenizer(writer, "smollm")
    random = np.random.default_rng(7)
    for name, shape in _tiny_shapes():
        values = np.ones(shape, np.float32) if len(shape) == 1 else random.normal(0, 0.1, shape).astype(np.float16)
        writer.add_tensor(name, values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


_HIDDEN = 64


def _tiny_shapes() -> Iterator[tuple[str, tuple[int, ...]]]:
    yield "token_embd.weight", (len(_tokens()), _HIDDEN)
    yield "output_norm.weight", (_HIDDEN,)
    heads = {"attn_q": _HIDDEN, "attn_k": _HIDDEN // 2, "attn_v": _HIDDEN // 2, "attn_output": _HIDDEN}
    for layer in ("blk.0", "blk.1"):
        for name in ("attn_norm", "ffn_norm"):
            yield f"{layer}.{name}.weight", (_HIDDEN,)
        for name, rows in {**heads, "ffn_gate": 2 * _HIDDEN, "ffn_up": 2 * _HIDDEN}.items():
            yield f"{layer}.{name}.weight", (rows, _HIDDEN)
        yield f"{layer}.ffn_down.weight", (_HIDDEN, 2 * _HIDDEN)


def random_values(rows: int = 4, columns: int = 64) -> np.ndarray[Any, Any]:
    """Values as weights have them: around zero, with the same few outliers each time."""
    return np.random.default_rng(7).standard_t(3, (rows, columns)).astype(np.float32)


def _tokens() -> list[str]:
    words = [merge.replace(" ", "") for merge in MERGES]
    return [*CONTROLS, *sorted(pre_tokenizers.ByteLevel.alphabet()), *words, *USER_DEFINED]


def _add_tokenizer(writer: GGUFWriter, pre: str) -> None:
    tokens = _tokens()
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(tokens)
    plain = len(tokens) - len(CONTROLS) - len(USER_DEFINED)
    kinds = [TokenType.CONTROL] * len(CONTROLS) + [TokenType.NORMAL] * plain + [TokenType.USER_DEFINED] * len(USER_DEFINED)
    writer.add_token_types(kinds)
    writer.add_token_merges(list(MERGES))
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)

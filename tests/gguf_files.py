"""A GGUF file of a few kilobytes: every byte as a token, a few words, and one tensor of each given type."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from gguf import GGMLQuantizationType, GGUFWriter, TokenType, quants
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


def random_values(rows: int = 4, columns: int = 64) -> np.ndarray[Any, Any]:
    """Values as weights have them: around zero, with the same few outliers each time."""
    return np.random.default_rng(7).standard_t(3, (rows, columns)).astype(np.float32)


def _add_tokenizer(writer: GGUFWriter, pre: str) -> None:
    words = [merge.replace(" ", "") for merge in MERGES]
    plain = sorted(pre_tokenizers.ByteLevel.alphabet()) + words
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list([*CONTROLS, *plain, *USER_DEFINED])
    kinds = [TokenType.CONTROL] * len(CONTROLS) + [TokenType.NORMAL] * len(plain) + [TokenType.USER_DEFINED]
    writer.add_token_types(kinds)
    writer.add_token_merges(list(MERGES))
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)

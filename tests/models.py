"""Small models made on the spot, in Hugging Face layout: what a test needs of a model folder without a download."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers

CONTEXT = 2048

CHATML_TEMPLATE = """\
{%- if tools %}
    {{- '<|im_start|>system\\n' ~ (tools | tojson) ~ '<|im_end|>\\n' }}
{%- endif %}
{%- for message in messages %}
    {{- '<|im_start|>' ~ message.role ~ '\\n' ~ message.content }}
    {%- for call in message.tool_calls %}
        {{- '<tool_call>\\n{"name": "' ~ call.function.name }}
        {{- '", "arguments": ' ~ (call.function.arguments | tojson) ~ '}\\n</tool_call>' }}
    {%- endfor %}
    {{- '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
{%- endif %}
"""

LLAMA_TEMPLATE = """\
{{- bos_token }}
{%- for message in messages %}
    {%- if (message.role == 'user') != (loop.index0 % 2 == 0) %}
        {{- raise_exception('Roles must alternate user/assistant') }}
    {%- endif %}
    {%- if message.role == 'user' %}
        {{- '[INST] ' ~ message.content | trim ~ ' [/INST]' }}
    {%- else %}
        {{- ' ' ~ message.content | trim ~ ' ' ~ eos_token }}
    {%- endif %}
{%- endfor %}
"""


def build_chatml_model(folder: Path) -> Path:
    """Byte-level BPE: `<|endoftext|>`, `<|im_start|>`, `<|im_end|>` are ids 0 to 2, then come all 256 bytes, then a few words."""
    controls = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    merges = [("h", "e"), ("l", "l"), ("he", "ll"), ("hell", "o"), ("Ġ", "w"), ("o", "r"), ("Ġ", "t")]
    pieces = controls + sorted(pre_tokenizers.ByteLevel.alphabet()) + [left + right for left, right in merges]
    tokenizer = Tokenizer(models.BPE({piece: at for at, piece in enumerate(pieces)}, merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(controls)
    return write_model(folder, tokenizer, CHATML_TEMPLATE, bos_token="<|im_start|>", eos_token="<|im_end|>", eos_token_id=[2, 0])


def build_sentencepiece_model(folder: Path) -> Path:
    """Llama's kind: BPE with `▁` for spaces and `<0x00>` to `<0xFF>` for other characters, after `<unk>`, `<s>` and `</s>`."""
    merges = [("▁", "h"), ("▁h", "i"), ("l", "l"), ("▁", "w"), ("o", "r")]
    bytes_ = [f"<0x{byte:02X}>" for byte in range(256)]
    letters = ["▁", *(chr(code) for code in range(0x21, 0x7F)), "é"]
    pieces = ["<unk>", "<s>", "</s>", *bytes_, *letters, *(left + right for left, right in merges)]
    vocab = {piece: at for at, piece in enumerate(pieces)}
    tokenizer = Tokenizer(models.BPE(vocab, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = _sentencepiece_decoder()
    tokenizer.add_special_tokens(["<unk>", "<s>", "</s>"])
    return write_model(folder, tokenizer, LLAMA_TEMPLATE, bos_token="<s>", eos_token="</s>", eos_token_id=2)


def build_unigram_model(folder: Path) -> Path:
    """Unigram, whose own vocabulary finds `</s>` in any text, and only the first piece of a text begins with a space."""
    letters = [(chr(code), -8.0) for code in range(0x21, 0x7F)]
    bytes_ = [(f"<0x{byte:02X}>", -12.0) for byte in range(256)]
    pieces = [("<unk>", 0.0), ("<s>", 0.0), ("</s>", 0.0), ("▁", -3.0), ("▁hello", -5.0), *letters, *bytes_]
    tokenizer = Tokenizer(models.Unigram(pieces, unk_id=0, byte_fallback=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first")
    tokenizer.decoder = _sentencepiece_decoder()
    tokenizer.add_special_tokens(["<unk>", "<s>", "</s>"])
    return write_model(folder, tokenizer, LLAMA_TEMPLATE, bos_token="<s>", eos_token="</s>", eos_token_id=2)


def write_model(
    folder: Path,
    tokenizer: Tokenizer,
    template: str,
    *,
    bos_token: str,
    eos_token: str,
    eos_token_id: int | list[int],
) -> Path:
    """Write tokenizer.json, tokenizer_config.json, config.json and generation_config.json; returns the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = {"chat_template": template, "bos_token": bos_token, "eos_token": {"__type": "AddedToken", "content": eos_token}}
    write_json(folder / "tokenizer_config.json", settings)
    write_json(folder / "config.json", {"max_position_embeddings": CONTEXT, "vocab_size": tokenizer.get_vocab_size()})
    write_json(folder / "generation_config.json", {"eos_token_id": eos_token_id})
    return folder


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    """One file of a model folder."""
    path.write_text(json.dumps(value, ensure_ascii=False), encoding="utf-8")


def _sentencepiece_decoder() -> decoders.Sequence:
    return decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])

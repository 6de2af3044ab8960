"""One model folder read by this project and by the tokenizers library, to compare the two."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer as Reference
from tokenizers.decoders import DecodeStream

from router.text.template import ChatTemplate
from router.text.tokenizer import Tokenizer


class ModelPair:
    """`tokenizer` is ours; the other methods say what the library gives."""

    def __init__(self, folder: Path) -> None:
        self.tokenizer = Tokenizer.load(folder)
        settings = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))
        self._template = ChatTemplate(
            settings["chat_template"], bos_token=settings["bos_token"], eos_token=settings["eos_token"]["content"]
        )
        self._reference = Reference.from_file(str(folder / "tokenizer.json"))

    def encode_text(self, text: str) -> list[int]:
        return list(self._reference.encode(text, add_special_tokens=False).ids)

    def encode_chat(self, messages: Sequence[Mapping[str, Any]]) -> list[int]:
        return self.encode_text(self._template.render(messages))

    def decode_stream(self, ids: Iterable[int]) -> str:
        stream = DecodeStream(skip_special_tokens=True)
        return "".join(stream.step(self._reference, token) or "" for token in ids)

    def control_ids_in(self, ids: Iterable[int]) -> list[int]:
        return [token for token in ids if token in self.tokenizer.control_ids]

    def text_of(self, ids: Iterable[int]) -> str:
        return b"".join(self.tokenizer.token_bytes[token] for token in ids).decode()

"""From a GGUF file to the folder the engine loads: run once per model, in a process of its own.

The engine can load a GGUF itself, but takes 2 to 4 times as long as from its own format and rounds some tensor types
(see `server.assets.gguf`). So the tensors are re-encoded where needed and the engine is asked once to save what it built. That
takes several times the model's memory and native code that may crash on a bad file: a child process gives the memory
back, and its crash is an error to the parent.

    python -m server.assets.prepare weights.gguf FOLDER
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import openvino_genai
from gguf import GGUFReader

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

SaveModel: TypeAlias = Callable[[Path], None]
"""Writes a model in the engine's own format beside the given GGUF file."""


def save_model(gguf: Path) -> None:
    """Have the engine load a GGUF file and save its model and its tokenizer beside it."""
    scheduler = openvino_genai.SchedulerConfig()
    scheduler.num_kv_blocks = 1
    openvino_genai.ContinuousBatchingPipeline(str(gguf), scheduler, "CPU", {"enable_save_ov_model": True})
    openvino_genai.Tokenizer(str(gguf), enable_save_ov_model=True)


def prepare_folder(gguf: Path, folder: Path, save: SaveModel = save_model) -> None:
    """Fill `folder` with the engine's model and tokenizer and the Hugging Face files that the router reads.

    Raises:
        AssetError: the file's architecture or tokenizer is not one the engine and the router can read.
    """
    reader = GGUFReader(gguf)
    fields = read_fields(reader)
    build_tokenizer(fields).save(str(folder / "tokenizer.json"))
    _write_json(folder / "tokenizer_config.json", describe_tokenizer(fields))
    _write_json(folder / "config.json", describe_model(fields))
    _write_json(folder / "generation_config.json", describe_generation(fields))
    weights = folder / "weights.gguf"
    if needs_encoding(reader):
        encode_tensors(reader, weights)
    else:
        weights.symlink_to(gguf.resolve())
    save(weights)
    weights.unlink()


def main(argv: Sequence[str]) -> int:
    gguf, folder = map(Path, argv)
    try:
        prepare_folder(gguf, folder)
    except AssetError as error:
        print(f"ERROR: {error}", file=sys.stderr)
        return 1
    return 0


def _write_json(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

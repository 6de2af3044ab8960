"""From a GGUF to a model folder, with the engine's part played by a function."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf import GGUFReader
from tokenizers import Tokenizer

from server.assets.prepare import main, prepare_folder
from tests.gguf_files import random_values, write_gguf


class Engine:
    """Saves like the engine, beside the file it is given, and remembers the tensor types it saw there."""

    def __init__(self) -> None:
        self.types: list[str] = []

    def save(self, gguf: Path) -> None:
        self.types = [tensor.tensor_type.name for tensor in GGUFReader(gguf).tensors]
        gguf.with_name("openvino_model.xml").touch()


def prepare(tmp_path: Path, tensors: Mapping[str, np.ndarray[Any, Any]]) -> tuple[Path, Engine]:
    folder, engine = tmp_path / "model", Engine()
    folder.mkdir()
    prepare_folder(write_gguf(tmp_path / "tiny.gguf", tensors), folder, engine.save)
    return folder, engine


def test_folder_holds_the_engines_and_the_routers_files(tmp_path: Path) -> None:
    """After preparing, the folder has what both sides read, and no weights file is left in it."""
    folder, _ = prepare(tmp_path, {"Q4_1.weight": random_values()})
    assert {path.name for path in folder.iterdir()} == {
        "openvino_model.xml",
        "tokenizer.json",
        "tokenizer_config.json",
        "config.json",
        "generation_config.json",
    }
    assert Tokenizer.from_file(str(folder / "tokenizer.json")).encode("hello").tokens == ["hello"]
    assert json.loads((folder / "generation_config.json").read_text())["eos_token_id"] == [2, 0]


def test_engine_sees_only_types_it_reads_exactly(tmp_path: Path) -> None:
    """The engine is given the re-encoded tensors, not the file's own."""
    _, engine = prepare(tmp_path, {"Q5_0.weight": random_values(), "Q4_0.weight": random_values()})
    assert engine.types == ["Q8_0", "Q4_0"]


def test_readable_file_is_given_as_it_is_and_survives(tmp_path: Path) -> None:
    """A file that needs no re-encoding is neither copied nor removed."""
    _, engine = prepare(tmp_path, {"Q4_0.weight": random_values()})
    assert engine.types == ["Q4_0"]
    assert (tmp_path / "tiny.gguf").is_file()


def test_unsupported_file_is_one_line_of_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The child says why it refuses a file in the form its parent looks for, without a traceback."""
    gguf = write_gguf(tmp_path / "tiny.gguf", {}, arch="gemma3")
    assert main([str(gguf), str(tmp_path)]) == 1
    assert capsys.readouterr().err == "ERROR: architecture 'gemma3': use one of llama, qwen2, qwen3\n"

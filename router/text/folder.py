"""Reads a model folder in Hugging Face layout. A file that lacks or is wrong is an error that names it; nothing is guessed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any


class InvalidModel(Exception):
    """A model folder that cannot be used. The message names the file and what is wrong with it."""


@dataclass(frozen=True, slots=True)
class ModelFiles:
    """What the router takes from a model's folder; `context` in tokens, `vocab_size` in ids, of `eos_ids` the first is the main one."""

    tokenizer_json: Mapping[str, Any]
    chat_template: str
    bos_token: str
    eos_token: str
    eos_ids: tuple[int, ...]
    context: int
    vocab_size: int


def read_model_files(folder: Path) -> ModelFiles:
    """Raises InvalidModel."""
    config_path = folder / "config.json"
    config = _read_json(config_path)
    settings = _read_json(folder / "tokenizer_config.json")
    return ModelFiles(
        tokenizer_json=_read_json(folder / "tokenizer.json"),
        chat_template=_read_template(folder, settings),
        bos_token=_token_text(settings.get("bos_token")),
        eos_token=_token_text(settings.get("eos_token")),
        eos_ids=_read_eos_ids(folder, config),
        context=_positive(config_path, config, "max_position_embeddings"),
        vocab_size=_positive(config_path, config, "vocab_size"),
    )


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise InvalidModel(f"{path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise InvalidModel(f"{path} is not UTF-8: {error}") from error


def _read_json(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(_read_text(path))
    except ValueError as error:
        raise InvalidModel(f"{path} is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise InvalidModel(f"{path} must hold a JSON object")
    return value


def _read_template(folder: Path, settings: Mapping[str, Any]) -> str:
    """The template's own file, else the field; a field of several named templates has one called "default"."""
    path = folder / "chat_template.jinja"
    if path.exists():
        return _read_text(path)
    template = settings.get("chat_template")
    if isinstance(template, list):
        template = {it["name"]: it["template"] for it in template}.get("default")
    if not isinstance(template, str):
        raise InvalidModel(f"{folder / 'tokenizer_config.json'} has no chat_template, and there is no {path.name}")
    return template


def _token_text(token: Any) -> str:
    return str(token["content"]) if isinstance(token, Mapping) else token or ""


def _read_eos_ids(folder: Path, config: Mapping[str, Any]) -> tuple[int, ...]:
    """As in transformers, `generation_config.json` goes before `config.json`; either may have one id, several or none."""
    path = folder / "generation_config.json"
    stated = _read_json(path).get("eos_token_id") if path.exists() else None
    ids = config.get("eos_token_id") if stated is None else stated
    if ids is None:
        return ()
    return tuple(ids) if isinstance(ids, list) else (ids,)


def _positive(path: Path, config: Mapping[str, Any], field: str) -> int:
    value = config.get(field)
    if not isinstance(value, int) or value < 1:
        raise InvalidModel(f"{path}: {field} must be a whole number above 0")
    return value

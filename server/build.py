"""Render the model repository: a copy of the template whose config.pbtxt placeholders are filled.

A placeholder is `${name}` inside a quoted string, as in TensorRT-LLM's own repositories. One that gets no value stays as it
is, which those that read it count as unset.
"""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

from google.protobuf.text_encoding import CEscape

TEMPLATE = Path(__file__).parents[1] / "model_repository"
"""That of our own model."""
CONFIG_NAME = "config.pbtxt"
PLACEHOLDER = re.compile(r"\$\{(\w+)\}")


class UnknownValue(ValueError):
    """A value was given that no template has a place for; the message lists those they have."""

    reason = "UNKNOWN_VALUE"


def render_repository(template: Path, target: Path, values: Mapping[str, str]) -> Path:
    """Copy the repository `template` to `target` with `values` filled in; returns `target`, which appears whole or not at all.

    Raises:
        UnknownValue: no config.pbtxt has a placeholder of that name.
        FileExistsError: `target` is there already.
    """
    _require_known(values, find_placeholders(template))
    if target.exists():
        raise FileExistsError(f"{target} exists; a model repository is rendered into a new folder")
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".render-") as work:
        copy = Path(work, target.name)
        shutil.copytree(template, copy, ignore=shutil.ignore_patterns("__pycache__"))
        for config in _list_configs(copy):
            config.write_text(fill_placeholders(config.read_text(encoding="utf-8"), values), encoding="utf-8")
        return copy.rename(target)


def find_placeholders(template: Path) -> set[str]:
    """Return the names that the repository's config.pbtxt files have placeholders for."""
    texts = (config.read_text(encoding="utf-8") for config in _list_configs(template))
    return {name for text in texts for name in PLACEHOLDER.findall(_drop_comments(text))}


def fill_placeholders(text: str, values: Mapping[str, str]) -> str:
    """Replace each `${name}` that has a value by that value, escaped for a quoted string of protobuf's text format."""
    return PLACEHOLDER.sub(lambda place: _escape(values[place[1]]) if place[1] in values else place[0], text)


def _escape(value: str) -> str:
    return CEscape(value.encode(), as_utf8=False)


def _drop_comments(text: str) -> str:
    return "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("#"))


def _list_configs(repository: Path) -> list[Path]:
    return sorted(repository.glob(f"*/{CONFIG_NAME}"))


def _require_known(values: Mapping[str, str], known: set[str]) -> None:
    unknown = sorted(values.keys() - known)
    if unknown:
        raise UnknownValue(f"unknown value {unknown[0]!r}; the templates know {', '.join(sorted(known)) or 'none'}")

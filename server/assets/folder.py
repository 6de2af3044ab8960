"""The prepared model folder: what it holds, and the manifest that says it is whole.

A folder is laid out like a Hugging Face repository in OpenVINO format, so the router and the engine read every model the
same way. ``tidegate.json`` is written last and names every other file with its size and digest: a folder without it, or
with a file of another size, was never finished and is made again.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

MANIFEST = "tidegate.json"
FORMAT = 1
LAYOUT = (
    "openvino_model.xml",
    "openvino_model.bin",
    "openvino_tokenizer.xml",
    "openvino_detokenizer.xml",
    "tokenizer.json",
    "config.json",
)


class AssetError(Exception):
    """A model could not be had. ``reason`` is a stable UPPER_SNAKE word; the message says what to do about it."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class FileRecord:
    """One file of a prepared folder: hexadecimal SHA-256 and size in bytes."""

    sha256: str
    size: int


@dataclass(frozen=True, slots=True)
class Origin:
    """What a folder was made from; `source` is JSON that names the packages, the file or the repository."""

    name: str
    source: Mapping[str, object]
    license: str


@dataclass(frozen=True, slots=True)
class Manifest:
    """A finished folder's origin and, by path within it, every file but the manifest itself."""

    origin: Origin
    files: Mapping[str, FileRecord]


def seal_folder(folder: Path, origin: Origin) -> None:
    """Write the manifest of a folder whose other files are complete; from here on `is_prepared` holds."""
    paths = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    files = {path.relative_to(folder).as_posix(): asdict(_record_file(path)) for path in paths}
    manifest = {"format": FORMAT} | asdict(origin) | {"files": files}
    (folder / MANIFEST).write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")


def read_manifest(folder: Path) -> Manifest | None:
    """Return the folder's manifest, or None when there is none that this version understands."""
    try:
        raw = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        if raw["format"] != FORMAT:
            return None
        files = {name: FileRecord(**record) for name, record in raw["files"].items()}
        return Manifest(Origin(raw["name"], raw["source"], raw["license"]), files)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def is_prepared(folder: Path) -> bool:
    """Whether the folder is finished: it has a manifest, and every file in it exists with the size it states."""
    manifest = read_manifest(folder)
    return manifest is not None and all(_size(folder / name) == it.size for name, it in manifest.files.items())


def find_damage(folder: Path) -> list[str]:
    """Read every file again and return the names of those whose bytes are not the ones that were sealed."""
    manifest = read_manifest(folder)
    if manifest is None:
        raise AssetError("NOT_PREPARED", f"{folder} has no readable {MANIFEST}; fetch the model first")
    return [name for name, record in manifest.files.items() if not _matches(folder / name, record)]


def require_layout(folder: Path) -> Path:
    """Return the folder if it holds what the engine and the router need, else raise `AssetError` naming what lacks."""
    if missing := [name for name in LAYOUT if not (folder / name).is_file()]:
        raise AssetError("NOT_A_MODEL", f"{folder} is not a model in OpenVINO format: it lacks {', '.join(missing)}")
    return folder


def hash_file(path: Path) -> str:
    """Return the file's SHA-256 in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _record_file(path: Path) -> FileRecord:
    with path.open("rb") as file:
        # The manifest must not reach the disk before the bytes it vouches for: a power cut would leave a folder of zeros.
        os.fsync(file.fileno())
    return FileRecord(hash_file(path), path.stat().st_size)


def _size(path: Path) -> int | None:
    return path.stat().st_size if path.is_file() else None


def _matches(path: Path, record: FileRecord) -> bool:
    return _size(path) == record.size and hash_file(path) == record.sha256

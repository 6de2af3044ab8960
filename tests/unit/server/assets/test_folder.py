"""The manifest: a folder is prepared if and only if it was sealed and its files are still there."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from server.assets.folder import (
    LAYOUT,
    MANIFEST,
    AssetError,
    Origin,
    find_damage,
    is_prepared,
    read_manifest,
    require_layout,
    seal_folder,
)

ORIGIN = Origin("tiny", {"packages": ["tiny==1.0"]}, "Apache-2.0")


@pytest.fixture
def sealed(tmp_path: Path) -> Path:
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "openvino_model.bin").write_bytes(b"weights")
    seal_folder(tmp_path, ORIGIN)
    return tmp_path


def test_sealed_folder_is_prepared(sealed: Path) -> None:
    """A sealed folder states its origin and every file with size and digest."""
    manifest = read_manifest(sealed)
    assert is_prepared(sealed)
    assert manifest is not None
    assert manifest.origin == ORIGIN
    assert manifest.files["openvino_model.bin"].size == 7
    assert set(manifest.files) == {"config.json", "openvino_model.bin"}


def test_folder_without_manifest_is_not_prepared(sealed: Path) -> None:
    """All the files without the manifest are a folder that was never finished."""
    (sealed / MANIFEST).unlink()
    assert not is_prepared(sealed)


@pytest.mark.parametrize("change", [Path.unlink, lambda path: path.write_bytes(b"short")])
def test_missing_or_cut_file_is_not_prepared(sealed: Path, change: object) -> None:
    """A file that is gone or has another size undoes the whole folder."""
    assert callable(change)
    change(sealed / "openvino_model.bin")
    assert not is_prepared(sealed)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"format": 1}', '{"format": 1, "files": 3}', "null", '"text"'])
def test_unreadable_manifest_is_no_manifest(sealed: Path, text: str) -> None:
    """Whatever stands in the manifest, a folder it does not describe is simply not prepared."""
    (sealed / MANIFEST).write_text(text)
    assert not is_prepared(sealed)


def test_manifest_of_another_format_is_not_understood(sealed: Path) -> None:
    """A folder made by a version with another layout is made again."""
    manifest = json.loads((sealed / MANIFEST).read_text()) | {"format": 2}
    (sealed / MANIFEST).write_text(json.dumps(manifest))
    assert not is_prepared(sealed)


def test_damage_is_found_by_digest(sealed: Path) -> None:
    """A file of the right size with other bytes passes the quick check and fails the full one."""
    (sealed / "openvino_model.bin").write_bytes(b"WEIGHTS")
    assert is_prepared(sealed)
    assert find_damage(sealed) == ["openvino_model.bin"]


def test_sound_folder_has_no_damage(sealed: Path) -> None:
    """Nothing is reported for a folder as it was sealed."""
    assert find_damage(sealed) == []


def test_folder_of_another_kind_is_refused_by_what_it_lacks(sealed: Path) -> None:
    """A folder that the engine cannot load is refused with the names of the missing files."""
    with pytest.raises(AssetError, match=r"lacks openvino_model.xml, openvino_tokenizer.xml") as caught:
        require_layout(sealed)
    assert caught.value.reason == "NOT_A_MODEL"


def test_folder_in_the_layout_is_taken_without_a_manifest(tmp_path: Path) -> None:
    """A folder that the user made by other means needs the files only."""
    for name in LAYOUT:
        (tmp_path / name).touch()
    assert require_layout(tmp_path) == tmp_path

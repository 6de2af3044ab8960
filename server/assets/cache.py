"""The cache of prepared models: a folder appears there whole or not at all, and is made once however many ask for it.

NAME/               finished: its manifest was written last, then the folder was renamed into place
.work/NAME.lock     held while NAME is being made
.work/NAME/         the attempt in progress; what a crashed one left is removed by the next
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from rich.progress import Progress

from server.assets.folder import AssetError, Origin, is_prepared, read_manifest
from server.assets.progress import show_step

FULL_DISK = (errno.ENOSPC, errno.EDQUOT)


def cache_folder(environment: Mapping[str, str] = os.environ) -> Path:
    """Return ``$TIDEGATE_CACHE``, else ``$XDG_CACHE_HOME/tidegate``, else ``~/.cache/tidegate``; it need not exist."""
    if own := environment.get("TIDEGATE_CACHE"):
        return Path(own).expanduser().absolute()
    shared = environment.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(shared).expanduser().absolute() / "tidegate"


def keep_folder(cache: Path, origin: Origin, make: Callable[[Path], Path], progress: Progress) -> Path:
    """Return the finished folder of `origin`, calling `make` first if the cache has none.

    `make` gets an empty work folder, which is removed afterwards, and returns a finished folder inside it.

    Raises:
        AssetError: DISK_FULL or CACHE_UNWRITABLE, or whatever `make` raises.
    """
    folder = cache / origin.name
    if _is_made(folder, origin):
        return folder
    try:
        with _exclusive_work_folder(cache, origin.name, progress) as work:
            # Another process may have made it while this one waited for the lock.
            if not _is_made(folder, origin):
                made = make(work)
                shutil.rmtree(folder, ignore_errors=True)
                made.rename(folder)
    except OSError as error:
        raise _explain(error, cache) from error
    return folder


def require_room(folder: Path, size: int) -> None:
    """Raise ENOSPC now rather than after a long download if fewer than `size` bytes are free where `folder` lies."""
    if shutil.disk_usage(folder).free < size:
        raise OSError(errno.ENOSPC, f"about {size / 1e9:.1f} GB must be free")


def _is_made(folder: Path, origin: Origin) -> bool:
    manifest = read_manifest(folder)
    return manifest is not None and origin.source.items() <= manifest.origin.source.items() and is_prepared(folder)


@contextmanager
def _exclusive_work_folder(cache: Path, name: str, progress: Progress) -> Iterator[Path]:
    attempts = cache / ".work" / name
    attempts.parent.mkdir(parents=True, exist_ok=True)
    with attempts.with_name(f"{name}.lock").open("w") as lock:
        _lock(lock.fileno(), name, progress)
        shutil.rmtree(attempts, ignore_errors=True)
        attempts.mkdir()
        try:
            # A new name each time: a child that outlived a killed parent must not write into this attempt.
            yield Path(tempfile.mkdtemp(dir=attempts))
        finally:
            shutil.rmtree(attempts, ignore_errors=True)


def _lock(lock: int, name: str, progress: Progress) -> None:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        with show_step(progress, f"Waiting: another process prepares {name}"):
            fcntl.flock(lock, fcntl.LOCK_EX)


def _explain(error: OSError, cache: Path) -> AssetError:
    if error.errno in FULL_DISK:
        return AssetError("DISK_FULL", f"no room for the model in {cache} ({error.strerror}); free some or set TIDEGATE_CACHE")
    return AssetError("CACHE_UNWRITABLE", f"{cache} cannot be used ({error}); set TIDEGATE_CACHE to a folder of yours")

"""The cache: whole or not at all, once however many ask, and clean after a crash."""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from rich.progress import Progress

from server.assets.cache import cache_folder, keep_folder, require_room
from server.assets.folder import AssetError, Origin, is_prepared, seal_folder

ORIGIN = Origin("tiny", {"sha256": "1"}, "Apache-2.0")


class Maker:
    """Makes a folder of one file, counts how often, and does something first, such as failing."""

    def __init__(self, first: Callable[[Path], object] = lambda _: None, origin: Origin = ORIGIN) -> None:
        self.first = first
        self.origin = origin
        self.count = 0

    def __call__(self, work: Path) -> Path:
        self.count += 1
        folder = work / "model"
        folder.mkdir()
        (folder / "weights").write_text(str(self.origin.source))
        self.first(work)
        seal_folder(folder, self.origin)
        return folder


def keep(cache: Path, make: Maker) -> Path:
    return keep_folder(cache, make.origin, make, Progress(disable=True))


def work_folders(cache: Path) -> list[Path]:
    return [path for path in (cache / ".work").iterdir() if path.is_dir()]


def fail(_: Path) -> None:
    raise RuntimeError("crashed")


def test_folder_is_made_once(tmp_path: Path) -> None:
    """The second call finds what the first one made."""
    make = Maker()
    assert keep(tmp_path, make) == keep(tmp_path, make) == tmp_path / "tiny"
    assert make.count == 1
    assert is_prepared(tmp_path / "tiny")


def test_work_folder_is_gone_afterwards(tmp_path: Path) -> None:
    """Downloads and half-made files do not stay behind."""
    keep(tmp_path, Maker(lambda work: (work / "wheel").write_text("large")))
    assert work_folders(tmp_path) == []


def test_failed_attempt_leaves_nothing_and_the_next_succeeds(tmp_path: Path) -> None:
    """An exception in the middle leaves no folder that could look finished."""
    with pytest.raises(RuntimeError, match="crashed"):
        keep(tmp_path, Maker(fail))
    assert not (tmp_path / "tiny").exists()
    assert work_folders(tmp_path) == []
    assert is_prepared(keep(tmp_path, Maker()))


def test_leftovers_of_a_killed_attempt_are_removed(tmp_path: Path) -> None:
    """What a process left when it was killed is deleted by the next attempt and never taken for a result."""
    left = tmp_path / ".work" / "tiny" / "killed" / "model"
    left.mkdir(parents=True)
    (left / "weights").write_text("half")
    folder = keep(tmp_path, Maker())
    assert not left.exists()
    assert (folder / "weights").read_text() != "half"


def test_unfinished_folder_in_place_is_made_again(tmp_path: Path) -> None:
    """A folder without a manifest is replaced, whatever is in it."""
    (tmp_path / "tiny").mkdir()
    (tmp_path / "tiny" / "stray").touch()
    folder = keep(tmp_path, Maker())
    assert is_prepared(folder)
    assert not (folder / "stray").exists()


def test_folder_of_another_source_is_made_again(tmp_path: Path) -> None:
    """When the catalogue pins other weights under the same name, the old folder is replaced."""
    keep(tmp_path, Maker())
    newer = Maker(origin=Origin("tiny", {"sha256": "2"}, "Apache-2.0"))
    assert (keep(tmp_path, newer) / "weights").read_text() == "{'sha256': '2'}"


def test_source_may_say_more_than_was_asked(tmp_path: Path) -> None:
    """A repository is asked for without its commit, which only the download tells: the folder is still the one."""
    keep(tmp_path, Maker(origin=Origin("tiny", {"sha256": "1", "commit": "abc"}, "Apache-2.0")))
    make = Maker()
    keep(tmp_path, make)
    assert make.count == 0


def test_two_at_once_make_it_once(tmp_path: Path) -> None:
    """A second caller waits for the first and takes its result."""
    begun, second_asked = threading.Event(), threading.Event()

    def make_slowly(_: Path) -> None:
        begun.set()
        second_asked.wait(10)

    make = Maker(make_slowly)
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(keep, tmp_path, make)
        begun.wait(10)
        second = pool.submit(keep, tmp_path, make)
        second_asked.set()
        assert first.result(10) == second.result(10)
    assert make.count == 1


@pytest.mark.parametrize(
    ("number", "reason"), [(errno.ENOSPC, "DISK_FULL"), (errno.EDQUOT, "DISK_FULL"), (errno.EROFS, "CACHE_UNWRITABLE")]
)
def test_disk_errors_say_what_to_do(tmp_path: Path, number: int, reason: str) -> None:
    """A full or read-only disk becomes an error that names the cache and the variable that moves it."""

    def fail(_: Path) -> None:
        raise OSError(number, "said the disk")

    with pytest.raises(AssetError, match="TIDEGATE_CACHE") as caught:
        keep(tmp_path, Maker(fail))
    assert caught.value.reason == reason
    assert str(tmp_path) in str(caught.value)


def test_cache_that_is_a_file_is_unwritable(tmp_path: Path) -> None:
    """A cache path that cannot be a folder is an error with a reason, not a traceback."""
    (tmp_path / "file").touch()
    with pytest.raises(AssetError) as caught:
        keep(tmp_path / "file", Maker())
    assert caught.value.reason == "CACHE_UNWRITABLE"


def test_room_is_asked_for_in_advance(tmp_path: Path) -> None:
    """More than the disk has is refused before anything is downloaded."""
    require_room(tmp_path, 1)
    with pytest.raises(OSError, match=r"about 1000000000.0 GB must be free"):
        require_room(tmp_path, 10**18)


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"TIDEGATE_CACHE": "/own", "XDG_CACHE_HOME": "/xdg"}, Path("/own")),
        ({"XDG_CACHE_HOME": "/xdg"}, Path("/xdg/tidegate")),
        ({"TIDEGATE_CACHE": "", "XDG_CACHE_HOME": ""}, Path.home() / ".cache" / "tidegate"),
        ({}, Path.home() / ".cache" / "tidegate"),
    ],
)
def test_cache_lies_where_the_environment_says(environment: dict[str, str], expected: Path) -> None:
    """Our own variable wins, then the desktop standard's, then the usual place; empty is unset."""
    assert cache_folder(environment) == expected

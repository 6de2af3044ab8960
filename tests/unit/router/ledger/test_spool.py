"""The queue of files: order, rotation, and what crashes and failing disks leave."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.ledger.spool import Spool, SpoolTaken


@contextmanager
def opened(folder: Path, segment_bytes: int = 64) -> Iterator[Spool]:
    spool = Spool(folder, segment_bytes)
    spool.open()
    try:
        yield spool
    finally:
        spool.close()


def drain(spool: Spool, limit_bytes: int = 1000) -> list[str]:
    """Reads and releases everything."""
    lines: list[str] = []
    while chunk := spool.read(limit_bytes):
        lines += chunk.lines
        spool.release(chunk)
    return lines


def segments(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("*.jsonl"))


def test_lines_come_out_in_order_and_files_go(tmp_path: Path) -> None:
    """Over several segments; only one that can still grow stays."""
    given_lines = [f"line {number}" for number in range(50)]
    with opened(tmp_path) as spool:
        for at in range(0, 50, 5):
            spool.append(given_lines[at : at + 5])
        assert len(segments(tmp_path)) > 3
        assert drain(spool, 30) == given_lines
        assert len(segments(tmp_path)) <= 1
        assert spool.pending_bytes == 0
    assert segments(tmp_path) == []


def test_lines_are_read_again_until_they_are_released(tmp_path: Path) -> None:
    """In the same process and in the next."""
    with opened(tmp_path) as spool:
        spool.append(["a", "b"])
        assert spool.read() == spool.read()
        pending = spool.pending_bytes
    with opened(tmp_path) as spool:
        assert spool.pending_bytes == pending
        spool.append(["c"])
        assert drain(spool) == ["a", "b", "c"]
    with opened(tmp_path) as spool:
        assert spool.read() is None


def test_half_a_line_is_dropped(tmp_path: Path) -> None:
    """What a crash cut off was never reported safe; lines before it and segments after it are whole."""
    (tmp_path / "000000000007.jsonl").write_text('whole\n{"ha')
    (tmp_path / "000000000008.jsonl").write_text("lf")
    (tmp_path / "000000000009.jsonl").write_text("")
    with opened(tmp_path) as spool:
        spool.append(["after"])
        assert segments(tmp_path)[-1] == "000000000010.jsonl"
        assert drain(spool) == ["whole", "after"]
        assert spool.pending_bytes == 0


def test_a_line_may_be_longer_than_a_read(tmp_path: Path) -> None:
    """It is not cut."""
    with opened(tmp_path) as spool:
        spool.append(["x" * 500, "y"])
        assert drain(spool, 10) == ["x" * 500, "y"]


def test_a_folder_belongs_to_one_process(tmp_path: Path) -> None:
    """A second router is refused, until the first has ended."""
    with opened(tmp_path):
        with pytest.raises(SpoolTaken, match="another router"):
            Spool(tmp_path).open()
    with opened(tmp_path) as spool:
        assert spool.read() is None


def test_a_failing_disk_is_told_and_lines_can_be_appended_again(tmp_path: Path) -> None:
    """The file that failed is not written any more; the number of the next one is free again or passed over."""
    with opened(tmp_path) as spool:
        spool.append(["a"])
        spool.append(["b" * 100])
        blocker = tmp_path / "000000000003.jsonl"
        spool.append(["c" * 100])
        blocker.mkdir()
        with pytest.raises(OSError, match="exists"):
            spool.append(["d"])
        spool.append(["d"])
        blocker.rmdir()
        assert drain(spool) == ["a", "b" * 100, "c" * 100, "d"]


def test_refused_lines_are_kept(tmp_path: Path) -> None:
    """For people; they do not come back as lines."""
    with opened(tmp_path) as spool:
        spool.set_aside("bad 1")
        spool.set_aside("bad 2")
        assert spool.read() is None
    with opened(tmp_path) as spool:
        assert spool.read() is None
    assert (tmp_path / "refused.jsonl").read_text() == "bad 1\nbad 2\n"
    assert os.stat(tmp_path / "refused.jsonl").st_mode & 0o077 == 0


@given(st.lists(st.one_of(st.integers(1, 9), st.just("read"), st.just("crash"))))
def test_whatever_happens_no_line_is_lost_or_out_of_order(tmp_path_factory: pytest.TempPathFactory, steps: list[int | str]) -> None:
    """Appending, reading and starting anew in any order: each line is released at least once, first times in order."""
    folder = tmp_path_factory.mktemp("spool")
    spool, appended, read = Spool(folder, 32), 0, list[str]()
    spool.open()
    for step in steps:
        if isinstance(step, int):
            spool.append([str(appended + n) for n in range(step)])
            appended += step
        elif step == "read" and (chunk := spool.read(10)):
            read += chunk.lines
            spool.release(chunk)
        elif step == "crash":
            spool.close()
            spool = Spool(folder, 32)
            spool.open()
    read += drain(spool)
    spool.close()
    assert list(dict.fromkeys(read)) == [str(number) for number in range(appended)]

"""Running a tool as a child process, with Python itself as the tool."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from server.assets.children import ChildError, folder_size, run_child


def run(folder: Path, code: str) -> str:
    return run_child([sys.executable, "-c", code], folder, lambda _: None, {"GREETING": "hello"})


def test_output_is_returned(tmp_path: Path) -> None:
    """What the child prints comes back, its environment having been extended."""
    assert run(tmp_path, "import os; print(os.environ['GREETING'])") == "hello"


def test_child_finds_our_packages(tmp_path: Path) -> None:
    """Our modules run as children wherever the caller stands."""
    assert run(tmp_path, "import server.assets.catalogue as c; print(c.DEFAULT_MODEL)") == "smollm2-135m"


def test_failure_quotes_the_last_error_line(tmp_path: Path) -> None:
    """Of all a tool prints, its own last error is what helps."""
    with pytest.raises(ChildError, match=r"^no such package$"):
        run(tmp_path, "print('ERROR: no such package.'); print('hint: none'); raise SystemExit(1)")


def test_failure_without_error_line_quotes_the_last_line(tmp_path: Path) -> None:
    """An exception's last line says what happened."""
    with pytest.raises(ChildError, match=r"^ValueError: bad magic$"):
        run(tmp_path, "raise ValueError('bad magic')")


def test_silent_death_gives_the_status(tmp_path: Path) -> None:
    """A child killed in native code says nothing; its status is all there is."""
    with pytest.raises(ChildError, match="no output, exit status -9"):
        run(tmp_path, "import os; os.kill(os.getpid(), 9)")


def test_full_disk_is_told_apart(tmp_path: Path) -> None:
    """A child that ran out of disk raises what a full disk raises here."""
    with pytest.raises(OSError, match="No space left on device"):
        run(tmp_path, "import errno, os; raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))")


def test_interrupt_kills_the_child(tmp_path: Path) -> None:
    """When the caller is interrupted while it watches, the child does not go on by itself."""

    def interrupt(_: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_child([sys.executable, "-c", "import time; time.sleep(60)"], tmp_path, interrupt, {})


def test_folder_size_counts_files_in_subfolders(tmp_path: Path) -> None:
    """The size of a folder is that of all files under it."""
    (tmp_path / "sub").mkdir()
    (tmp_path / "a").write_bytes(b"12")
    (tmp_path / "sub" / "b").write_bytes(b"345")
    assert folder_size(tmp_path) == 5

"""Lines on disk that are still to be written elsewhere: a queue of files that survives `kill -9` and power cuts.

Lines are appended to a segment, `000000000001.jsonl` and so on, and are safe once `append` returns. They are read from the oldest segment
on; a segment that was read to its end and sealed is deleted. What has been read of a segment is not noted on disk: after a crash it is read
again from its beginning, so whoever takes the lines must know them by an id. A process never appends to a segment of an earlier one,
therefore half a line, the mark of a crash, is always a segment's last and was never reported safe.

The folder belongs to one process at a time. Nothing here is asynchronous or locked: call it from one thread.
"""

from __future__ import annotations

import fcntl
import logging
import os
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from router.errors import StartFailed

log = logging.getLogger("tidegate.ledger")


class SpoolTaken(StartFailed):
    """Another process uses the folder."""


@dataclass(slots=True)
class _Segment:
    path: Path
    size: int  # bytes that are safe
    read: int = 0  # bytes released


@dataclass(frozen=True, slots=True)
class Chunk:
    """Some lines, and up to which byte of their segment they reach."""

    lines: Sequence[str]
    end: int


class Spool:
    """A durable queue of lines in a folder."""

    def __init__(self, folder: Path, segment_bytes: int = 1024 * 1024) -> None:
        self._folder = folder
        self._segment_bytes = segment_bytes
        self._segments: deque[_Segment] = deque()
        self._next = 1
        self._file: int | None = None  # open while the last segment can grow
        self._lock: int | None = None
        self.pending_bytes = 0
        """Bytes of lines that are safe and not released; may be read from any thread."""

    def open(self) -> None:
        """Takes the folder and what an earlier process left in it. Raises SpoolTaken, OSError."""
        self._folder.mkdir(parents=True, exist_ok=True)
        self._lock = os.open(self._folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self.close()
            raise SpoolTaken(f"{self._folder}: another router uses this folder; give each its own") from None
        paths = sorted(self._folder.glob("*[0-9].jsonl"))
        self._segments.extend(_Segment(path, path.stat().st_size) for path in paths)
        self.pending_bytes = sum(segment.size for segment in self._segments)
        self._next = int(paths[-1].stem) + 1 if paths else 1
        self._drop_finished()

    def close(self) -> None:
        """Leaves the folder to the next process."""
        self._seal()
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def append(self, lines: Sequence[str]) -> None:
        """Adds lines; they are safe when it returns. On OSError none is known to be safe: append them again, to another segment."""
        data = "".join(f"{line}\n" for line in lines).encode()
        try:
            file = self._begin() if self._file is None else self._file
            _write_all(file, data)
            os.fsync(file)
        except OSError:
            # After a failed fsync the kernel takes pages for written that are not, so this file is not trusted with more.
            self._seal()
            raise
        self._segments[-1].size += len(data)
        self.pending_bytes += len(data)
        if self._segments[-1].size >= self._segment_bytes:
            self._seal()

    def read(self, limit_bytes: int = 256 * 1024) -> Chunk | None:
        """The oldest lines that are not released, the same ones until they are; None when there are none."""
        while self._segments and (segment := self._segments[0]).read < segment.size:
            chunk = _read_lines(segment, limit_bytes)
            if chunk is not None:
                return chunk
            log.warning("%s ends in half a line, from a crash; it was never reported as written", segment.path.name)
            self.release(Chunk((), segment.size))
        return None

    def release(self, chunk: Chunk) -> None:
        """Lets go of what `read` gave last."""
        self.pending_bytes -= chunk.end - self._segments[0].read
        self._segments[0].read = chunk.end
        self._drop_finished()

    def set_aside(self, line: str) -> None:
        """Keeps a line that nobody takes in `refused.jsonl`, for people to look at."""
        file = os.open(self._folder / "refused.jsonl", os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            _write_all(file, f"{line}\n".encode())
            os.fsync(file)
        finally:
            os.close(file)

    def _begin(self) -> int:
        path = self._folder / f"{self._next:012d}.jsonl"
        self._next += 1
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        self._segments.append(_Segment(path, 0))
        sync_folder(self._folder)
        return self._file

    def _seal(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None
            self._drop_finished()

    def _drop_finished(self) -> None:
        while self._segments and self._segments[0].read >= self._segments[0].size:
            if self._file is not None and len(self._segments) == 1:
                return  # it can still grow
            self._segments.popleft().path.unlink()


def _read_lines(segment: _Segment, limit_bytes: int) -> Chunk | None:
    with segment.path.open("rb") as file:
        file.seek(segment.read)
        data = file.read(min(limit_bytes, segment.size - segment.read))
        if b"\n" not in data:
            data += file.readline(segment.size - file.tell())  # a line longer than the limit
    end = data.rfind(b"\n") + 1
    return Chunk(data[: end - 1].decode(errors="replace").split("\n"), segment.read + end) if end else None


def _write_all(file: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(file, view) :]


def sync_folder(folder: Path) -> None:
    """Makes new and renamed files of a folder survive a power cut."""
    file = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(file)
    finally:
        os.close(file)

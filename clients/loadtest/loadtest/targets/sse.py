"""Server-sent events from bytes cut anywhere (WHATWG HTML, section 9.2.6). Sans-I/O.

Lines end in CR LF, LF or CR, and a CR at the end of a piece may or may not have its LF in the next one. Bytes are decoded by line, so a cut
inside a character does no harm. Only `data` is of interest here; other fields and comments are passed over.
"""

from __future__ import annotations

from collections.abc import Iterator

_BOM = b"\xef\xbb\xbf"


class EventParser:
    """Feed it pieces of a body; it gives the `data` of each event that is complete."""

    def __init__(self) -> None:
        self._rest = b""
        self._data: list[str] = []
        self._after_cr = False
        self._at_start = True

    def feed(self, piece: bytes) -> Iterator[str]:
        """The data of the events that this piece completes."""
        for line in self._lines(piece):
            if line:
                self._take(line)
            elif self._data:
                yield "\n".join(self._data)
                self._data.clear()

    def _lines(self, piece: bytes) -> Iterator[bytes]:
        """The lines that this piece completes. `bytes.splitlines` knows exactly CR, LF and CR LF."""
        if self._after_cr and piece:
            piece, self._after_cr = piece.removeprefix(b"\n"), False
        if not piece:
            return
        lines = (self._rest + piece).splitlines(keepends=True)
        self._rest = b"" if lines and lines[-1].endswith((b"\r", b"\n")) else lines.pop()
        self._after_cr = not self._rest and lines[-1].endswith(b"\r")
        for line in lines:
            yield self._strip(line)

    def _strip(self, line: bytes) -> bytes:
        if self._at_start:
            self._at_start = False
            line = line.removeprefix(_BOM)
        return line.rstrip(b"\r\n")

    def _take(self, line: bytes) -> None:
        name, _, value = line.partition(b":")
        if name == b"data":
            self._data.append(value.removeprefix(b" ").decode("utf-8", "replace"))

"""Callers whose connections ping often, as gRPC's C core does with a short keepalive."""

from __future__ import annotations

import asyncio
import struct
from pathlib import Path

from tests.bench.whole import run_bench
from tests.bench.worker import Worker

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
SETTINGS, PING, GOAWAY = 4, 6, 7
ACK = 1


def frame(kind: int, payload: bytes = b"") -> bytes:
    """An HTTP/2 frame of the connection itself."""
    return struct.pack(">I", len(payload))[1:] + bytes((kind, 0)) + bytes(4) + payload


async def read_frame(reader: asyncio.StreamReader) -> tuple[int, int, bytes]:
    """Kind, flags and payload of the next frame."""
    head = await reader.readexactly(9)
    return head[3], head[4], await reader.readexactly(int.from_bytes(head[:3], "big"))


async def test_pings_end_no_connection(chatml: Path) -> None:
    """A hundred without a stream, one behind the other, are all answered; gRPC's default is to end all streams at the third."""
    async with run_bench(chatml, Worker(chatml)) as router:
        host, _, port = router.target.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(PREFACE + frame(SETTINGS))
        for number in range(100):
            writer.write(frame(PING, struct.pack(">Q", number)))
            while (answer := await read_frame(reader))[0] != PING or not answer[1] & ACK:
                assert answer[0] != GOAWAY
            assert answer[2] == struct.pack(">Q", number)
        writer.close()

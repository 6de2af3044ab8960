"""JSON over plain HTTP on loopback: POST a JSON object to a path, get one back."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

Json = dict[str, Any]
Handler = Callable[[Json], Awaitable[Json]]


async def serve_json(handlers: dict[str, Handler]) -> asyncio.Server:
    """Serves each path with its handler; what a handler raises is answered with 500."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            path, asked = await _read(reader)
            status, answer = "200 OK", await handlers[path](asked)
        except Exception as error:
            status, answer = "500 Internal Server Error", {"fault": repr(error)}
        body = json.dumps(answer).encode()
        head = f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        writer.write(head.encode() + body)
        await writer.drain()
        writer.close()

    return await asyncio.start_server(serve, "127.0.0.1", 0)


async def _read(reader: asyncio.StreamReader) -> tuple[str, Json]:
    head = (await reader.readuntil(b"\r\n\r\n")).decode()
    lines = head.split("\r\n")
    headers = {key.lower(): value.strip() for key, _, value in (line.partition(":") for line in lines[1:])}
    body = await reader.readexactly(int(headers.get("content-length", 0)))
    return lines[0].split()[1], json.loads(body or b"{}")

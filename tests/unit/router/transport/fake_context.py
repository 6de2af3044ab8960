"""A gRPC servicer context without a call: it keeps what a handler does to it."""

from __future__ import annotations

import asyncio
from typing import Any, NoReturn

import grpc
from google.rpc.status_pb2 import Status


class FakeContext:
    """`written` holds the responses, `code`, `message` and `trailing` what the call was ended with."""

    def __init__(self, metadata: dict[str, str] | None = None) -> None:
        self.written: asyncio.Queue[Any] = asyncio.Queue()
        self.code: grpc.StatusCode | None = None
        self.message = ""
        self.trailing: tuple[tuple[str, bytes], ...] = ()
        self._metadata = tuple((metadata or {}).items())

    def invocation_metadata(self) -> tuple[tuple[str, str], ...]:
        return self._metadata

    def auth_context(self) -> dict[str, list[bytes]]:
        return {}

    def time_remaining(self) -> float | None:
        return None

    async def send_initial_metadata(self, metadata: tuple[tuple[str, str], ...]) -> None:
        """Headers are not looked at."""

    async def write(self, response: Any) -> None:
        self.written.put_nowait(response)

    async def abort(self, code: grpc.StatusCode, message: str = "", trailing: tuple[tuple[str, bytes], ...] = ()) -> NoReturn:
        self.code, self.message, self.trailing = code, message, trailing
        raise grpc.aio.AbortError

    def status(self) -> Status:
        """The rich status that travels beside the code."""
        return Status.FromString(dict(self.trailing)["grpc-status-details-bin"])

"""Servers under test. All are measured by the same runner and the same records; a target only speaks its protocol."""

from __future__ import annotations

from typing import Protocol

from loadtest.record import Record
from loadtest.request import Request


class Target(Protocol):
    """A server under test, connected."""

    async def run(self, request: Request, record: Record) -> None:
        """Sends one request and fills its record until it has ended. Whatever the server does is in the record; nothing is raised.

        Cancelling the call cancels the request at the server.
        """
        ...

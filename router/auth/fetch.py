"""Fetching a small document over HTTPS, on a thread."""

from __future__ import annotations

import asyncio
import urllib.request
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor
from urllib.parse import urlsplit

Fetch = Callable[[str], Awaitable[bytes]]
"""The document at a URL. Raises OSError and ValueError."""

_MAX_BYTES = 1024 * 1024
_LOOPBACK = ("127.0.0.1", "::1", "localhost")


class Fetcher:
    """Reads documents in an executor, up to a size. The time limit is for each read from the connection, not for all."""

    def __init__(self, executor: Executor, timeout_s: float = 5.0) -> None:
        self._executor = executor
        self._timeout_s = timeout_s
        self._opener = urllib.request.build_opener(_NoRedirects)

    async def fetch(self, url: str) -> bytes:
        """The document. Raises OSError, and ValueError when the URL is not https (http only on loopback) or the document is too large."""
        check_url(url)
        return await asyncio.get_running_loop().run_in_executor(self._executor, self._read, url)

    def _read(self, url: str) -> bytes:
        with self._opener.open(url, timeout=self._timeout_s) as response:
            document: bytes = response.read(_MAX_BYTES + 1)
        if len(document) > _MAX_BYTES:
            raise ValueError("the document is too large")
        return document


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: object) -> None:
        """A key server that sends us elsewhere is not the one that was configured."""


def check_url(url: str) -> None:
    """Raises ValueError unless keys may be fetched from here."""
    parts = urlsplit(url)
    if parts.scheme != "https" and not (parts.scheme == "http" and parts.hostname in _LOOPBACK):
        raise ValueError(f"{url}: use https")

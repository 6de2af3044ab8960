"""The synchronous client behind the asynchronous one's face, for the runner: every call of it is made in a thread."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, Self

from tidegate import sync


class SyncTurn:
    """A turn or tools loop."""

    def __init__(self, turn: Any) -> None:
        self._turn = turn

    async def __aiter__(self) -> AsyncIterator[Any]:
        events = iter(self._turn)
        try:
            while (event := await asyncio.to_thread(next, events, None)) is not None:
                yield event
        finally:
            await asyncio.to_thread(events.close)

    async def text(self) -> Any:
        return await asyncio.to_thread(self._turn.text)

    async def value(self) -> Any:
        return await asyncio.to_thread(self._turn.value)

    async def cancel(self) -> None:
        await asyncio.to_thread(self._turn.cancel)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._turn, name)


class SyncSession:
    """A session."""

    def __init__(self, session: sync.Session) -> None:
        self._session = session

    async def start(self, *messages: Any, **options: Any) -> SyncTurn:
        return SyncTurn(await asyncio.to_thread(self._session.start, *messages, **options))

    async def __aenter__(self) -> Self:
        await asyncio.to_thread(self._session.__enter__)
        return self

    async def __aexit__(self, *fault: Any) -> None:
        await asyncio.to_thread(self._session.__exit__, *fault)


class SyncClient:
    """A client."""

    def __init__(self, target: str, **options: Any) -> None:
        self._client = sync.Client(target, **options)

    def chat(self, *messages: Any, **options: Any) -> SyncTurn:
        return SyncTurn(self._client.chat(*messages, **options))

    def run_tools(self, *messages: Any, **options: Any) -> SyncTurn:
        return SyncTurn(self._client.run_tools(*messages, **options))

    def session(self, **options: Any) -> SyncSession:
        return SyncSession(self._client.session(**options))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *fault: Any) -> None:
        await asyncio.to_thread(self._client.__exit__, *fault)

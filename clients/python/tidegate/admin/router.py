"""The connection to a router. A key comes from a file or the environment, never from the arguments, which others on the machine can see."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc

from tidegate.credentials import KEY_VARIABLE, Credentials, PlaintextRefused, Tls, choose_credentials
from tidegate.errors import from_rpc_error
from tidegate.v1.admin_service_pb2_grpc import AdminServiceStub

_OPTIONS = (("grpc.max_receive_message_length", -1),)
_TIMEOUT_S = 15.0
_PAGE_ROWS = 1000
_NO_KEY = (
    f"no key: set {KEY_VARIABLE} or give --key-file; the first is made on the router's machine by "
    "`tidegate router ITS_CONFIGURATION_FILE --new-operator-key NAME`"
)


class Fault(Exception):
    """The arguments or the surroundings are wrong; the message says what to change."""


@dataclass(frozen=True, slots=True)
class Access:
    """Where a router is and how it knows the caller."""

    target: str
    credentials: Credentials


class Router:
    """AdminService. Every method raises TidegateError."""

    def __init__(self, channel: grpc.aio.Channel, credentials: Credentials) -> None:
        self._stub: Any = AdminServiceStub(channel)
        self._metadata = tuple(credentials.headers().items())

    async def call(self, rpc: str, request: Any) -> Any:
        """The answer of an RPC that has one."""
        try:
            return await getattr(self._stub, rpc)(request, metadata=self._metadata, timeout=_TIMEOUT_S)
        except grpc.aio.AioRpcError as error:
            raise from_rpc_error(error) from None

    async def list(self, rpc: str, request: Any, field: str, most: int | None = None) -> list[Any]:
        """The items of a listing, all or at most so many."""
        items: list[Any] = []
        while most is None or len(items) < most:
            request.page_size = _PAGE_ROWS if most is None else min(_PAGE_ROWS, most - len(items))
            page = await self.call(rpc, request)
            items += getattr(page, field)
            request.page_token = page.next_page_token
            if not page.next_page_token:
                break
        return items

    async def stream(self, rpc: str, request: Any) -> AsyncGenerator[Any, None]:
        """The answers of an RPC that has many. To be closed when not read to the end."""
        call = getattr(self._stub, rpc)(request, metadata=self._metadata)
        try:
            async for answer in call:
                yield answer
        except grpc.aio.AioRpcError as error:
            raise from_rpc_error(error) from None
        finally:
            call.cancel()


@asynccontextmanager
async def connect(access: Access) -> AsyncIterator[Router]:
    """A router to talk to. It is not reached before the first call. Raises Fault."""
    try:
        channel = access.credentials.open_channel(access.target, _OPTIONS)
    except OSError as error:
        raise Fault(f"{error.filename}: {error.strerror}") from None
    async with channel:
        yield Router(channel, access.credentials)


def read_access(arguments: Namespace, environment: Mapping[str, str]) -> Access:
    """From the options that all commands have. Raises Fault."""
    target, tls = arguments.target, _read_tls(arguments)
    try:
        credentials = choose_credentials(target, key=_read_key(arguments.key_file), token=None, tls=tls, environment=environment)
    except PlaintextRefused:
        raise Fault(f"the key would go to {target} unencrypted; give --tls or --tls-ca FILE") from None
    except ValueError:
        raise Fault(f"{'--key-file' if arguments.key_file else KEY_VARIABLE}: this is not a key") from None
    if not (credentials.token or arguments.tls_cert):
        raise Fault(_NO_KEY)
    return Access(target, credentials)


def _read_key(path: Path | None) -> str | None:
    """Raises ValueError for a file that holds no text, and Fault for none that can be read."""
    if path is None:
        return None
    try:
        key = path.read_text().strip()
    except OSError as error:
        raise Fault(f"--key-file: {error.filename}: {error.strerror}") from None
    if not key:
        raise ValueError("the file is empty")
    return key


def _read_tls(arguments: Namespace) -> Tls | bool:
    given = Tls(arguments.tls_ca, arguments.tls_cert, arguments.tls_key)
    if bool(given.private_key) != bool(given.certificate):
        raise Fault("--tls-cert and --tls-key belong together")
    return bool(arguments.tls) if given == Tls() else given

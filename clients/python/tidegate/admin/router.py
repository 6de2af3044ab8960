"""The connection to a router. A key comes from a file or the environment, never from the arguments, which others on the machine can see."""

from __future__ import annotations

import ipaddress
import re
from argparse import Namespace
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import grpc

from tidegate.errors import from_rpc_error
from tidegate.v1.admin_service_pb2_grpc import AdminServiceStub

KEY_VARIABLE = "TIDEGATE_KEY"

_HEADER_VALUE = re.compile(r"[!-~]+", re.ASCII)
_OPTIONS = (("grpc.max_receive_message_length", -1),)
_TIMEOUT_S = 15.0
_PAGE_ROWS = 1000


class Fault(Exception):
    """The arguments or the surroundings are wrong; the message says what to change."""


@dataclass(frozen=True, slots=True)
class Access:
    """Where a router is and how it knows the caller."""

    target: str
    key: str = field(default="", repr=False)
    tls: grpc.ChannelCredentials | None = None


class Router:
    """AdminService. Every method raises TidegateError."""

    def __init__(self, channel: grpc.aio.Channel, key: str) -> None:
        self._stub: Any = AdminServiceStub(channel)
        self._metadata = [("authorization", f"Bearer {key}")] if key else []

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
    """A router to talk to. It is not reached before the first call."""
    if access.tls is None:
        channel = grpc.aio.insecure_channel(access.target, options=_OPTIONS)
    else:
        channel = grpc.aio.secure_channel(access.target, access.tls, options=_OPTIONS)
    async with channel:
        yield Router(channel, access.key)


def read_access(arguments: Namespace, environment: Mapping[str, str]) -> Access:
    """From the options that all commands have. Raises Fault."""
    key, tls = _read_key(arguments, environment), _read_tls(arguments)
    if key and tls is None and not _is_local(arguments.target):
        raise Fault(f"the key would go to {arguments.target} unencrypted; give --tls or --tls-ca FILE")
    return Access(arguments.target, key, tls)


def _read_key(arguments: Namespace, environment: Mapping[str, str]) -> str:
    try:
        given = arguments.key_file.read_text() if arguments.key_file else environment.get(KEY_VARIABLE, "")
    except OSError as error:
        raise Fault(f"--key-file: {error.filename}: {error.strerror}") from None
    except UnicodeDecodeError:
        given = "\0"
    key: str = given.strip()
    if not _HEADER_VALUE.fullmatch(key) and (key or arguments.key_file):
        raise Fault(f"{'--key-file' if arguments.key_file else KEY_VARIABLE}: this is not a key")
    return key


def _read_tls(arguments: Namespace) -> grpc.ChannelCredentials | None:
    paths = (arguments.tls_ca, arguments.tls_key, arguments.tls_cert)
    if not arguments.tls and not any(paths):
        return None
    try:
        authority, private_key, certificate = (path and path.read_bytes() for path in paths)
    except OSError as error:
        raise Fault(f"{error.filename}: {error.strerror}") from None
    if bool(private_key) != bool(certificate):
        raise Fault("--tls-cert and --tls-key belong together")
    return grpc.ssl_channel_credentials(authority, private_key, certificate)


def _is_local(target: str) -> bool:
    host = target.rpartition(":")[0].strip("[]")
    if target.startswith("unix:") or host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False

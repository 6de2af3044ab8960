"""Ports for a server that is about to start, held for it until it listens."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

from server.installation import LaunchError


@contextmanager
def reserve_ports(host: str, ports: Sequence[int]) -> Iterator[list[int]]:
    """Hold `ports` on `host` and yield their numbers, a free one for each 0.

    The sockets are bound with SO_REUSEADDR and never listen: a server that sets it too, as Triton does, can take them over,
    while the system gives them to nobody else in the seconds or minutes that models take to load.

    Raises:
        LaunchError: PORT_IN_USE.
    """
    with ExitStack() as held:
        sockets = [held.enter_context(_bind(host, port)) for port in ports]
        yield [bound.getsockname()[1] for bound in sockets]


def _bind(host: str, port: int) -> socket.socket:
    bound = socket.socket()
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((host, port))
    except (OSError, OverflowError) as error:
        bound.close()
        why = error.strerror if isinstance(error, OSError) else "no such port"
        raise LaunchError("PORT_IN_USE", f"{host}:{port} cannot be used ({why}): choose another port") from error
    return bound

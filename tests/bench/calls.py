"""Calls on the bare stub that are expected to fail."""

from __future__ import annotations

from typing import Any

import grpc
from tidegate import TidegateError
from tidegate.errors import from_rpc_error


async def failure_of(call: Any) -> TidegateError:
    """What a call of any kind ends with; a call that ends with OK fails the test."""
    try:
        if isinstance(call, grpc.aio.UnaryUnaryCall):
            await call
        else:
            async for _ in call:
                pass
    except grpc.aio.AioRpcError as error:
        return from_rpc_error(error)
    raise AssertionError("the call succeeded")

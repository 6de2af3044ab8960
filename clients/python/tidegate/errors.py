"""What a call or a turn can fail with, as exceptions that carry the router's status."""

from __future__ import annotations

from typing import TypeVar

import grpc
from google.protobuf.message import DecodeError, Message
from google.rpc.error_details_pb2 import BadRequest, ErrorInfo, RequestInfo, RetryInfo
from google.rpc.status_pb2 import Status

Detail = TypeVar("Detail", bound=Message)


class TidegateError(Exception):
    """A call or turn failed.

    `code` is the canonical status code, `reason` the stable UPPER_SNAKE reason ("" when the failure did not come from a router),
    `request_id` what to quote to support, `fields` the wrong fields with what would be right, and `retry_after` seconds or None.
    """

    def __init__(self, status: Status) -> None:
        super().__init__(status.message)
        self.code = _CODES.get(status.code, grpc.StatusCode.UNKNOWN)
        self.message = status.message
        info = _detail(status, ErrorInfo)
        self.reason = info.reason if info else ""
        request = _detail(status, RequestInfo)
        self.request_id = request.request_id if request else ""
        bad = _detail(status, BadRequest)
        self.fields = {violation.field: violation.description for violation in bad.field_violations} if bad else {}
        retry = _detail(status, RetryInfo)
        self.retry_after = retry.retry_delay.ToTimedelta().total_seconds() if retry else None

    def __str__(self) -> str:
        return f"{self.code.name} {self.reason}: {self.message}".replace(" :", ":")


class StreamLost(TidegateError):
    """The stream ended before the turn did: its answer is incomplete."""


def stream_lost(message: str) -> StreamLost:
    """A stream that ended without the router saying why."""
    return StreamLost(Status(code=grpc.StatusCode.UNAVAILABLE.value[0], message=message))


def from_rpc_error(error: grpc.aio.AioRpcError) -> TidegateError:
    """The router's error behind a failed RPC."""
    if error.details() == _WRITE_FAILED:
        return stream_lost("the stream ended while a message was sent")
    for key, value in error.trailing_metadata() or ():
        if key == "grpc-status-details-bin":
            try:
                return TidegateError(Status.FromString(value))
            except DecodeError:
                break
    return TidegateError(Status(code=error.code().value[0], message=error.details() or ""))


def _detail(status: Status, kind: type[Detail]) -> Detail | None:
    for packed in status.details:
        if packed.Is(kind.DESCRIPTOR):
            detail = kind()
            packed.Unpack(detail)
            return detail
    return None


_WRITE_FAILED = "Internal error from Core"
"""What grpc.aio puts in place of the router's status when that crosses with a write."""

_CODES = {code.value[0]: code for code in grpc.StatusCode}

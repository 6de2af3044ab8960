"""What a call or a turn can fail with, as exceptions that carry the router's status.

The class says who must act: whoever wrote the request, whoever gives access, or nobody but time. `reason` says what happened. Failures that
no router told have reasons too: UNREACHABLE, STREAM_LOST, DEADLINE_EXCEEDED, OUTPUT_INCOMPLETE, OUTPUT_INVALID and TOO_MANY_ROUNDS.
"""

from __future__ import annotations

from typing import Any, TypeVar

import grpc
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import DecodeError, Message
from google.rpc.error_details_pb2 import BadRequest, ErrorInfo, RequestInfo, RetryInfo
from google.rpc.status_pb2 import Status
from grpc import StatusCode

Detail = TypeVar("Detail", bound=Message)

DOMAIN = "tidegate.dev"


class TidegateError(Exception):
    """A call or turn failed. Made from a status, it is of the class that the status's code stands for.

    `code` is the canonical status code, `reason` the stable UPPER_SNAKE reason ("" when neither a router nor this client said it),
    `request_id` what to quote to support, `fields` the wrong fields with what would be right, and `retry_after` seconds or None.
    """

    def __new__(cls, status: Status) -> TidegateError:
        return super().__new__(_CLASSES.get(_code_of(status), cls) if cls is TidegateError else cls, status)

    def __init__(self, status: Status) -> None:
        super().__init__(status.message)
        self.status = status
        self.code = _code_of(status)
        self.message = status.message
        info = _detail(status, ErrorInfo)
        self.reason = info.reason if info else ""
        request = _detail(status, RequestInfo)
        self.request_id = request.request_id if request else ""
        bad = _detail(status, BadRequest)
        self.fields = {violation.field: violation.description for violation in bad.field_violations} if bad else {}
        retry = _detail(status, RetryInfo)
        self.retry_after: float | None = retry.retry_delay.ToTimedelta().total_seconds() if retry else None

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.status,)

    def __str__(self) -> str:
        return f"{self.code.name} {self.reason}: {self.message}".replace(" :", ":")


class RequestInvalid(TidegateError):
    """The request must change; `fields` names what is wrong with it."""


class AccessDenied(TidegateError):
    """Credentials are missing or wrong, or do not allow this."""


class Exhausted(TidegateError):
    """A quota is used up, or all places are taken. With `retry_after` there will be room after so many seconds."""


class Unavailable(TidegateError):
    """The router or all its workers are down or going. Says nothing about the request."""


class StreamLost(Unavailable):
    """The stream ended before the turn did: its answer is incomplete."""


class DeadlineExceeded(TidegateError):
    """The deadline passed; the turn was cancelled."""


class OutputInvalid(TidegateError):
    """The answer ended too early, or is not of the type asked for: there is no value, and no call to carry out."""


class TooManyRounds(TidegateError):
    """The model still calls tools after all the rounds that it may have."""


def stream_lost(message: str, *, never_arrived: bool = False) -> StreamLost:
    """A stream that ended without the router saying why; `never_arrived`: the turn has certainly not been answered by anyone."""
    return StreamLost(_status(StatusCode.UNAVAILABLE, "STREAM_LOST", message, retry_now=never_arrived))


def unreachable(message: str) -> Unavailable:
    """No stream could be opened, and no router said why."""
    return Unavailable(_status(StatusCode.UNAVAILABLE, "UNREACHABLE", message))


def deadline_exceeded() -> DeadlineExceeded:
    """The caller's time is over."""
    return DeadlineExceeded(_status(StatusCode.DEADLINE_EXCEEDED, "DEADLINE_EXCEEDED", "the deadline passed before the answer was whole"))


def output_incomplete(finish: str) -> OutputInvalid:
    """An answer that ended otherwise than by itself."""
    return OutputInvalid(_status(StatusCode.DATA_LOSS, "OUTPUT_INCOMPLETE", f"the answer ended too early: {finish}"))


def output_invalid(description: str) -> OutputInvalid:
    """An answer of another type than asked for. The description must not hold the answer."""
    return OutputInvalid(_status(StatusCode.DATA_LOSS, "OUTPUT_INVALID", f"the answer is not of the type asked for: {description}"))


def too_many_rounds(limit: int) -> TooManyRounds:
    """The loop of calls and results was ended."""
    return TooManyRounds(_status(StatusCode.ABORTED, "TOO_MANY_ROUNDS", f"the model called tools in each of {limit} rounds"))


def from_rpc_error(error: grpc.aio.AioRpcError, *, opened: bool = False) -> TidegateError:
    """The error behind a failed RPC: the router's own words, or what their absence means; `opened`: a stream on which it had answered."""
    told = _told_status(error)
    if told is not None:
        return TidegateError(told)
    if error.code() in _BROKEN:
        return stream_lost("the connection to the router broke") if opened else unreachable(error.details() or "no connection")
    return TidegateError(Status(code=error.code().value[0], message=error.details() or ""))


def _told_status(error: grpc.aio.AioRpcError) -> Status | None:
    for key, value in error.trailing_metadata() or ():
        if key == "grpc-status-details-bin":
            try:
                return Status.FromString(value)
            except DecodeError:
                return None
    return None


def _status(code: StatusCode, reason: str, message: str, *, retry_now: bool = False) -> Status:
    status = Status(code=code.value[0], message=message)
    status.details.add().Pack(ErrorInfo(reason=reason, domain=DOMAIN))
    if retry_now:
        status.details.add().Pack(RetryInfo(retry_delay=Duration()))
    return status


def _code_of(status: Status) -> StatusCode:
    return _CODES.get(status.code, StatusCode.UNKNOWN)


def _detail(status: Status, kind: type[Detail]) -> Detail | None:
    for packed in status.details:
        if packed.Is(kind.DESCRIPTOR):
            detail = kind()
            packed.Unpack(detail)
            return detail
    return None


_CODES = {code.value[0]: code for code in StatusCode}

_BROKEN = (StatusCode.UNAVAILABLE, StatusCode.INTERNAL, StatusCode.UNKNOWN, StatusCode.CANCELLED)
"""What gRPC and proxies call a connection that broke. INTERNAL is also what grpc.aio says when a status crosses with a write."""

_CLASSES: dict[StatusCode, type[TidegateError]] = {
    StatusCode.INVALID_ARGUMENT: RequestInvalid,
    StatusCode.NOT_FOUND: RequestInvalid,
    StatusCode.UNIMPLEMENTED: RequestInvalid,
    StatusCode.OUT_OF_RANGE: RequestInvalid,
    StatusCode.UNAUTHENTICATED: AccessDenied,
    StatusCode.PERMISSION_DENIED: AccessDenied,
    StatusCode.RESOURCE_EXHAUSTED: Exhausted,
    StatusCode.UNAVAILABLE: Unavailable,
    StatusCode.DEADLINE_EXCEEDED: DeadlineExceeded,
    StatusCode.DATA_LOSS: OutputInvalid,
}

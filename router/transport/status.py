"""Errors as gRPC statuses: the one place where the error tree meets the wire."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any, NoReturn

import grpc
from google.protobuf.duration_pb2 import Duration
from google.rpc.error_details_pb2 import BadRequest, ErrorInfo, QuotaFailure, RequestInfo, RetryInfo
from google.rpc.status_pb2 import Status
from grpc_interceptor.server import AsyncServerInterceptor

from router.errors import Code, TidegateError, describe_fault, internal
from router.transport.requests import open_call

DOMAIN = "tidegate.dev"

log = logging.getLogger("tidegate.transport")


def to_status(error: TidegateError, request_id: str) -> Status:
    """A google.rpc.Status with ErrorInfo, RequestInfo and, where they apply, QuotaFailure or BadRequest, and RetryInfo."""
    status = Status(code=grpc.StatusCode[error.code.value].value[0], message=error.message)
    status.details.add().Pack(ErrorInfo(reason=error.reason, domain=DOMAIN))
    status.details.add().Pack(RequestInfo(request_id=request_id))
    if error.violations and error.code is Code.RESOURCE_EXHAUSTED:
        subjects = [QuotaFailure.Violation(subject=v.field, description=v.description) for v in error.violations]
        status.details.add().Pack(QuotaFailure(violations=subjects))
    elif error.violations:
        fields = [BadRequest.FieldViolation(field=v.field, description=v.description) for v in error.violations]
        status.details.add().Pack(BadRequest(field_violations=fields))
    if error.retry_after_s is not None:
        delay = Duration()
        delay.FromMilliseconds(round(error.retry_after_s * 1000))
        status.details.add().Pack(RetryInfo(retry_delay=delay))
    return status


async def abort(context: grpc.aio.ServicerContext[Any, Any], error: TidegateError, request_id: str) -> NoReturn:
    """Ends the RPC with the error's status."""
    status = to_status(error, request_id)
    details = (("grpc-status-details-bin", status.SerializeToString()),)
    await context.abort(grpc.StatusCode[error.code.value], error.message, details)


class StatusInterceptor(AsyncServerInterceptor):  # type: ignore[misc]
    """Asks `admit` about each call, then maps what it or the handler raises. `admit` gets the method's name.

    An unknown exception becomes INTERNAL with a fixed sentence: its own text may hold a prompt or a key. Both are one interceptor because
    grpc-interceptor makes a generator of what lies inside another one, and the outer one would no longer see its errors.
    """

    def __init__(self, admit: Callable[[str], Awaitable[None]]) -> None:
        self._admit = admit

    async def intercept(
        self,
        method: Callable[..., Any],
        request_or_iterator: Any,
        context: grpc.aio.ServicerContext[Any, Any],
        method_name: str,
    ) -> Any:
        call = open_call(context)
        try:
            await self._admit(method_name)
            response = method(request_or_iterator, context)
            # A library's service (reflection) gives a generator; ours are all coroutines.
            return await response if isinstance(response, Awaitable) else response
        except TidegateError as error:
            await abort(context, error, call.request_id)
        except (grpc.aio.AbortError, grpc.aio.UsageError):
            raise
        except Exception as error:
            log.error("%s failed; request %s: %s", method_name, call.request_id, describe_fault(error))
            await abort(context, internal(), call.request_id)

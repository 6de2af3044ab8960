"""Errors as gRPC statuses: the one place where the error tree meets the wire."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any, NoReturn

import grpc
from google.protobuf.duration_pb2 import Duration
from google.rpc.error_details_pb2 import BadRequest, ErrorInfo, RequestInfo, RetryInfo
from google.rpc.status_pb2 import Status
from grpc_interceptor.server import AsyncServerInterceptor

from router.errors import TidegateError, describe_fault, internal
from router.transport.requests import open_call

DOMAIN = "tidegate.dev"

log = logging.getLogger("tidegate.transport")


def to_status(error: TidegateError, request_id: str) -> Status:
    """A google.rpc.Status with ErrorInfo, RequestInfo and, where they apply, BadRequest and RetryInfo."""
    status = Status(code=grpc.StatusCode[error.code.value].value[0], message=error.message)
    status.details.add().Pack(ErrorInfo(reason=error.reason, domain=DOMAIN))
    status.details.add().Pack(RequestInfo(request_id=request_id))
    if error.violations:
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
    """Maps what handlers raise. An unknown exception becomes INTERNAL with a fixed sentence: its own text may hold a prompt or a key."""

    async def intercept(
        self,
        method: Callable[..., Any],
        request_or_iterator: Any,
        context: grpc.aio.ServicerContext[Any, Any],
        method_name: str,
    ) -> Any:
        call = open_call(context)
        response = method(request_or_iterator, context)
        if not isinstance(response, Awaitable):
            return response  # a generator of a library's service (reflection); ours are all coroutines
        try:
            return await response
        except TidegateError as error:
            await abort(context, error, call.request_id)
        except (grpc.aio.AbortError, grpc.aio.UsageError):
            raise
        except Exception as error:
            log.error("%s failed; request %s: %s", method_name, call.request_id, describe_fault(error))
            await abort(context, internal(), call.request_id)

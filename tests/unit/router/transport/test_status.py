"""Errors on the wire: what a caller can read from a status, and that nothing foreign gets into one."""

from __future__ import annotations

import inspect
import logging
from collections.abc import AsyncIterator
from typing import Any, get_type_hints

import grpc
import pytest
from google.rpc.error_details_pb2 import BadRequest, ErrorInfo, RequestInfo, RetryInfo
from google.rpc.status_pb2 import Status

from router import errors
from router.errors import Code, TidegateError, Violation
from router.transport.requests import current_call
from router.transport.status import DOMAIN, StatusInterceptor, to_status
from tests.unit.router.transport.fake_context import FakeContext

EVERY_ERROR = [
    errors.field_invalid(Violation("messages", "must be set"), Violation("stop", "too many")),
    errors.option_unsupported("tools", "not served"),
    errors.prompt_too_long(10, 5),
    errors.model_unknown(),
    errors.protocol_violated("SETUP_MISSING", "setup", "must be first"),
    errors.too_many_turns(3),
    errors.too_many_connections(3),
    errors.reader_too_slow(),
    errors.stream_unknown(),
    errors.resume_gap(),
    errors.stream_taken(),
    errors.resume_unavailable(),
    errors.router_lost(),
    errors.no_worker(),
    errors.worker_lost(),
    errors.worker_stalled(),
    errors.worker_full(),
    errors.engine_failed(),
    errors.engine_refused(),
    errors.draining(),
    errors.request_quarantined(),
    errors.answer_diverged(),
    errors.unauthenticated(),
    errors.permission_denied("x"),
    errors.unknown("tenant", "tenant_id"),
    errors.identity_unknown(),
    errors.price_missing("model"),
    errors.guide_invalid("position 3: unknown escape"),
    errors.internal(),
]


def details_of(status: Status) -> dict[str, Any]:
    """The status's details by type name."""
    found = {}
    for packed in status.details:
        for kind in (ErrorInfo, RequestInfo, BadRequest, RetryInfo):
            if packed.Is(kind.DESCRIPTOR):
                found[kind.__name__] = message = kind()
                packed.Unpack(message)
    return found


@pytest.mark.parametrize("error", EVERY_ERROR, ids=lambda error: error.reason)
def test_a_status_tells_the_whole_error(error: TidegateError) -> None:
    """Code, message, reason and request id always; fields and the time to wait where the error has them."""
    status = to_status(error, "request-1")
    details = details_of(status)
    assert status.code == grpc.StatusCode[error.code.value].value[0]
    assert status.message == error.message
    assert (details["ErrorInfo"].reason, details["ErrorInfo"].domain) == (error.reason, DOMAIN)
    assert details["RequestInfo"].request_id == "request-1"
    assert ("BadRequest" in details) == bool(error.violations)
    assert ("RetryInfo" in details) == (error.retry_after_s is not None)


def test_every_error_is_in_the_table_above() -> None:
    """A new one must be mapped too."""
    functions = [member for _, member in inspect.getmembers(errors, inspect.isfunction) if member.__module__ == errors.__name__]
    builders = [function for function in functions if issubclass(get_type_hints(function)["return"], TidegateError)]
    assert len(builders) == len(EVERY_ERROR)


def test_every_code_is_a_grpc_code() -> None:
    """The names are gRPC's, and no other is used."""
    assert {code.value for code in Code} <= {code.name for code in grpc.StatusCode}


def test_wrong_fields_are_listed() -> None:
    """Each with its path and what would be right."""
    bad = details_of(to_status(EVERY_ERROR[0], ""))["BadRequest"]
    assert [(it.field, it.description) for it in bad.field_violations] == [("messages", "must be set"), ("stop", "too many")]


def test_the_time_to_wait_is_a_duration() -> None:
    """To the millisecond."""
    retry = details_of(to_status(errors.draining(), ""))["RetryInfo"]
    assert retry.retry_delay.ToMilliseconds() == 500


async def admit(method: str) -> None:
    """Everybody may call."""


async def intercept(handler: Any, context: FakeContext) -> Any:
    return await StatusInterceptor(admit).intercept(handler, "request", context, "/tidegate.v1.ChatService/Complete")  # type: ignore[arg-type]


async def test_a_handlers_answer_passes() -> None:
    """With the call's id at hand for the handler."""

    async def handler(request: Any, context: Any) -> str:
        return f"{request} {current_call().request_id}"

    assert await intercept(handler, FakeContext({"x-request-id": "abc"})) == "request abc"


async def test_our_errors_end_the_call_with_their_status() -> None:
    """The code and the message are the status's, and the rich status travels in the trailing metadata."""

    async def handler(request: Any, context: Any) -> None:
        raise errors.draining()

    context = FakeContext({"x-request-id": "abc"})
    with pytest.raises(grpc.aio.AbortError):
        await intercept(handler, context)
    assert (context.code, context.message) == (grpc.StatusCode.UNAVAILABLE, errors.draining().message)
    assert context.status() == to_status(errors.draining(), "abc")


async def test_a_foreign_exception_shows_nothing_of_itself(caplog: pytest.LogCaptureFixture) -> None:
    """Its text may hold a prompt or a key: the caller gets a fixed sentence, the log the exception and the request's id."""

    async def handler(request: Any, context: Any) -> None:
        raise ValueError("the key is 12345")

    context = FakeContext({"x-request-id": "abc"})
    with caplog.at_level(logging.ERROR), pytest.raises(grpc.aio.AbortError):
        await intercept(handler, context)
    assert context.code is grpc.StatusCode.INTERNAL
    assert details_of(context.status())["ErrorInfo"].reason == "INTERNAL"
    assert b"12345" not in context.status().SerializeToString()
    assert "abc" in caplog.text


async def test_an_abort_of_the_handlers_own_passes() -> None:
    """It has set its status already."""

    async def handler(request: Any, context: Any) -> None:
        await context.abort(grpc.StatusCode.NOT_FOUND, "no such service")

    context = FakeContext()
    with pytest.raises(grpc.aio.AbortError):
        await intercept(handler, context)
    assert context.code is grpc.StatusCode.NOT_FOUND


async def test_a_librarys_generator_passes() -> None:
    """Reflection is served so; its responses are not awaited here."""

    async def handler(request: Any, context: Any) -> AsyncIterator[str]:
        yield "one"
        yield "two"

    assert [item async for item in await intercept(handler, FakeContext())] == ["one", "two"]

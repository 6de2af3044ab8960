"""Errors as HTTP tells them: every one of the tree has a status and a body in OpenAI's shape."""

from __future__ import annotations

import json

import pytest

from router import errors
from router.errors import Code, TidegateError, Violation
from router.quota.limits import SubjectKind
from router.quota.quota import QuotaExceeded
from router.transport.http.errors import headers_of, status_of, to_json, write_refusal
from tests.unit.router.transport.test_status import EVERY_ERROR


@pytest.mark.parametrize("error", EVERY_ERROR, ids=lambda error: error.reason)
def test_every_error_has_a_status_and_a_body(error: TidegateError) -> None:
    """Whose fault it is decides the class of the status; whether to come back is always said."""
    told = json.loads(to_json(error))["error"]
    assert set(told) == {"message", "type", "param", "code"}
    assert told["message"]
    assert (status_of(error) >= 500) == (error.code in (Code.UNAVAILABLE, Code.INTERNAL))
    headers = dict(headers_of(error))
    assert (b"retry-after" in headers) == (error.retry_after_s is not None)
    assert (headers.get(b"x-should-retry") == b"false") == (error.retry_after_s is None)


@pytest.mark.parametrize(
    ("error", "status", "kind", "code", "param"),
    [
        (errors.unauthenticated(), 401, "authentication_error", "invalid_api_key", None),
        (errors.permission_denied("no"), 403, "permission_error", "permission_denied", None),
        (errors.model_unknown(), 404, "not_found_error", "model_not_found", "model"),
        (errors.prompt_too_long(9, 5), 400, "invalid_request_error", "context_length_exceeded", "messages"),
        (errors.option_unsupported("tools", "not served"), 400, "invalid_request_error", "option_unsupported", "tools"),
        (errors.guide_invalid("bad"), 400, "invalid_request_error", "guide_invalid", "response_format"),
        (errors.worker_full(), 429, "rate_limit_error", "worker_full", None),
        (errors.no_worker(), 503, "server_error", "no_worker", None),
        (errors.internal(), 500, "server_error", "internal", None),
        (errors.protocol_violated("MESSAGE_TOO_LARGE", "body", "x"), 413, "invalid_request_error", "message_too_large", "body"),
        (errors.protocol_violated("ENDPOINT_UNSERVED", "model", "x"), 501, "server_error", "endpoint_unserved", "model"),
    ],
)
def test_what_clients_look_at(error: TidegateError, status: int, kind: str, code: str, param: str | None) -> None:
    """Status, type and code where OpenAI has them, else our own."""
    told = json.loads(to_json(error))["error"]
    assert (status_of(error), told["type"], told["code"], told["param"]) == (status, kind, code, param)


@pytest.mark.parametrize("code", Code)
def test_every_code_has_a_status(code: Code) -> None:
    """One that is added to the tree is added here."""
    assert 400 <= status_of(TidegateError(code, "X", "x")) < 600


def test_fields_are_named_as_in_the_body() -> None:
    """All that are wrong, the first as `param`."""
    error = errors.field_invalid(
        Violation("sampling.top_p", "too low"), Violation("max_output_tokens", "too few"), Violation("stop[0]", "empty")
    )
    told = json.loads(to_json(error))["error"]
    assert told["message"] == "top_p: too low; max_completion_tokens: too few; stop[0]: empty"
    assert told["param"] == "top_p"


@pytest.mark.parametrize(
    ("field", "param"),
    [
        ("tools[3].name", "tools[3].function.name"),
        ("tools[3].parameters_json", "tools[3].function.parameters"),
        ("tool_choice.mode", "tool_choice"),
        ("tool_choice.tool", "tool_choice"),
        ("tool_choice.function", "tool_choice.function"),
        ("messages[1].tool_calls", "messages[1].tool_calls"),
    ],
)
def test_fields_of_tools_are_named_as_in_the_body(field: str, param: str) -> None:
    """Where the body nests them differently."""
    assert json.loads(to_json(errors.field_invalid(Violation(field, "x"))))["error"]["param"] == param


def test_whose_quota_it_was_is_no_field() -> None:
    """A limit's subject is in the message; `param` is for fields of the body."""
    error = TidegateError(
        Code.RESOURCE_EXHAUSTED, "QUOTA_EXCEEDED", "used up", violations=(Violation("tenant", "used up"),), retry_after_s=1.2
    )
    assert json.loads(to_json(error))["error"]["param"] is None
    assert dict(headers_of(error)) == {b"retry-after": b"2", b"retry-after-ms": b"1200"}


def test_a_refusal_is_a_whole_response() -> None:
    """For connections that have no request yet; it says that the connection ends."""
    head, _, body = write_refusal(errors.draining()).partition(b"\r\n\r\n")
    lines = head.split(b"\r\n")
    assert lines[0] == b"HTTP/1.1 503 Service Unavailable"
    assert {b"connection: close", b"content-type: application/json", b"content-length: %d" % len(body), b"retry-after: 1"} <= set(lines)
    assert json.loads(body)["error"]["code"] == "draining"


def test_a_used_up_quota_is_told_in_headers() -> None:
    """By OpenAI's names, with nothing left for such a turn."""
    headers = dict(headers_of(QuotaExceeded(SubjectKind.USER, "requests_per_minute", 10, 1.5)))
    assert (headers[b"x-ratelimit-limit-requests"], headers[b"x-ratelimit-remaining-requests"]) == (b"10", b"0")
    assert headers[b"retry-after"] == b"2"

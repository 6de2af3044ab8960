"""Errors in OpenAI's shape: the one place where the error tree meets HTTP, as status.py is for gRPC.

`code` is OpenAI's word where it has one that clients look for, else the stable reason in lower case; `param` names the field as the HTTP
API spells it. What must not be tried again says so in `x-should-retry`: OpenAI's clients would repeat every 5xx.
"""

from __future__ import annotations

import json
import math
import re
from http import HTTPStatus
from typing import Any

from router.errors import Code, TidegateError
from router.quota.quota import QuotaExceeded
from router.transport.http.headers import Headers, allowance_headers

_STATUSES = {
    Code.INVALID_ARGUMENT: 400,
    Code.UNAUTHENTICATED: 401,
    Code.PERMISSION_DENIED: 403,
    Code.NOT_FOUND: 404,
    Code.UNIMPLEMENTED: 400,
    Code.ALREADY_EXISTS: 409,
    Code.FAILED_PRECONDITION: 400,
    Code.ABORTED: 409,
    Code.OUT_OF_RANGE: 400,
    Code.RESOURCE_EXHAUSTED: 429,
    Code.UNAVAILABLE: 503,
    Code.INTERNAL: 500,
}
_OF_HTTP = {
    "PATH_UNKNOWN": 404,
    "METHOD_NOT_ALLOWED": 405,
    "REQUEST_TIMEOUT": 408,
    "MESSAGE_TOO_LARGE": 413,
    "MEDIA_TYPE_UNSUPPORTED": 415,
    "UPGRADE_REQUIRED": 426,
    "HEADERS_TOO_LARGE": 431,
    "ENDPOINT_UNSERVED": 501,
}
"""Faults that only this door has, by reason."""

_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    429: "rate_limit_error",
}
_CODES = {
    "UNAUTHENTICATED": "invalid_api_key",
    "MODEL_UNKNOWN": "model_not_found",
    "PROMPT_TOO_LONG": "context_length_exceeded",
}
_PARAMS = (
    (re.compile(r"^sampling\."), ""),
    (re.compile(r"^max_output_tokens$"), "max_completion_tokens"),
    (re.compile(r"^min_output_tokens$"), "min_tokens"),
    (re.compile(r"^(tools\[\d+\])\.name$"), r"\1.function.name"),
    (re.compile(r"^(tools\[\d+\])\.parameters_json$"), r"\1.function.parameters"),
    (re.compile(r"^tool_choice\.(mode|tool)$"), "tool_choice"),
)
"""How fields of a turn are spelled in HTTP."""


def status_of(error: TidegateError) -> int:
    """The response's status."""
    return _OF_HTTP.get(error.reason) or _STATUSES[error.code]


def code_of_reason(reason: str) -> str:
    """OpenAI's word for a reason, else the reason in lower case."""
    return _CODES.get(reason) or reason.lower()


def to_object(error: TidegateError) -> dict[str, Any]:
    """The body of an error's response, and of the last event of a stream that fails."""
    status = status_of(error)
    fields = [(_param_of(it.field), it.description) for it in error.violations if error.code is not Code.RESOURCE_EXHAUSTED]
    more = [f"and {error.more} more"] if error.more else []
    told = {
        "message": "; ".join([*(f"{name}: {description}" for name, description in fields), *more])
        if error.reason == "FIELD_INVALID"
        else error.message,
        "type": _TYPES.get(status) or ("server_error" if status >= 500 else "invalid_request_error"),
        "param": fields[0][0] if fields else None,
        "code": code_of_reason(error.reason),
    }
    return {"error": told}


def to_json(error: TidegateError) -> bytes:
    """The same as bytes."""
    return json.dumps(to_object(error)).encode()


def headers_of(error: TidegateError) -> Headers:
    """When to come back, or not to, and which quota is used up."""
    headers = [(b"www-authenticate", b"Bearer")] if error.code is Code.UNAUTHENTICATED else []
    if isinstance(error, QuotaExceeded):
        headers += allowance_headers([error.allowance])
    if error.retry_after_s is None:
        return [*headers, (b"x-should-retry", b"false")]
    delay = error.retry_after_s
    return [*headers, (b"retry-after", str(math.ceil(delay)).encode()), (b"retry-after-ms", str(math.ceil(delay * 1000)).encode())]


def write_refusal(error: TidegateError) -> bytes:
    """A whole response for a connection that ends with it."""
    status, body = HTTPStatus(status_of(error)), to_json(error)
    own = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode()), (b"connection", b"close")]
    lines = [b"%b: %b\r\n" % header for header in (*own, *headers_of(error))]
    return b"HTTP/1.1 %d %b\r\n%b\r\n%b" % (status, status.phrase.encode(), b"".join(lines), body)


def _param_of(field: str) -> str:
    for pattern, spelling in _PARAMS:
        field = pattern.sub(spelling, field)
    return field

"""GET /openapi.json, made from the models that requests are checked with, and /docs, a page that shows it and needs nothing else."""

from __future__ import annotations

import re
from dataclasses import dataclass
from importlib.resources import files

from pydantic.json_schema import models_json_schema

from router.transport.http.chat import ChatRequest
from router.transport.http.completions import CompletionRequest
from router.transport.http.exchange import Exchange
from router.transport.http.forms import Json

_PAGE = files("router.transport.http") / "docs.html"
_POLICY = b"default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'"

_INTRODUCTION = """\
OpenAI's API, served by Tidegate. A field that is null counts as not given; one that is not listed here is refused by name.

A streamed answer's status is held back until its first content, so that a refusal has a status of its own, but not for long: from then on a
fault is one event with an `error`, and a stream without `[DONE]` is not a whole answer. While a turn waits, the stream holds comments and a
field `tidegate` with its place in the queue, which the standard bids clients to ignore.
"""


@dataclass(frozen=True, slots=True)
class _Operation:
    """What can be asked at a path."""

    method: str
    path: str
    summary: str
    body: str = ""
    produces: tuple[str, ...] = ("application/json",)
    is_open: bool = False

    def describe(self) -> Json:
        """As OpenAPI has it."""
        described: Json = {
            "summary": self.summary,
            "parameters": [_parameter(name) for name in re.findall(r"{(\w+)}", self.path)],
            "responses": {
                "200": {"description": "OK", "content": {kind: {} for kind in self.produces}},
                "default": {"description": "An error", "content": {"application/json": {"schema": _refer("Error")}}},
            },
            "security": [] if self.is_open else [{"credential": []}],
        }
        if self.body:
            described["requestBody"] = {"required": True, "content": {"application/json": {"schema": _refer(self.body)}}}
        return described


_ANSWERS = ("application/json", "text/event-stream")
_OPERATIONS = (
    _Operation("post", "/v1/chat/completions", "Continues a conversation", "ChatRequest", _ANSWERS),
    _Operation("post", "/v1/completions", "Continues texts, without a chat template", "CompletionRequest", _ANSWERS),
    _Operation("get", "/v1/models", "The models that the caller may use"),
    _Operation("get", "/v1/models/{name}", "One model"),
    _Operation("get", "/v1/converse", "The Converse protocol over a WebSocket, in protobuf's JSON form; see protos/tidegate/v1"),
    _Operation("get", "/healthz", "Whether the process runs", is_open=True),
    _Operation("get", "/readyz", "Whether somebody is served, and why not", is_open=True),
    _Operation("get", "/metrics", "Prometheus metrics", produces=("text/plain",), is_open=True),
)
_ERROR: Json = {
    "type": "object",
    "properties": {
        "message": {"type": "string"},
        "type": {"type": "string"},
        "param": {"type": ["string", "null"], "description": "The field that is wrong."},
        "code": {"type": "string", "description": "Stable, for programs."},
    },
    "required": ["message", "type", "param", "code"],
}


class Documents:
    """The endpoints that tell what the others take."""

    def __init__(self) -> None:
        self._document = describe_api()

    async def tell_schema(self, exchange: Exchange) -> None:
        """The OpenAPI document."""
        await exchange.answer_json(self._document)

    async def show_page(self, exchange: Exchange) -> None:
        """The page for people."""
        await exchange.answer(_PAGE.read_bytes(), content_type=b"text/html; charset=utf-8", headers=[(b"content-security-policy", _POLICY)])


def describe_api() -> Json:
    """The OpenAPI document."""
    _, models = models_json_schema([(ChatRequest, "validation"), (CompletionRequest, "validation")], ref_template=_refer("{model}")["$ref"])
    paths: Json = {}
    for it in _OPERATIONS:
        paths.setdefault(it.path, {})[it.method] = it.describe()
    error = {"type": "object", "properties": {"error": _ERROR}, "required": ["error"]}
    credential = {"type": "http", "scheme": "bearer", "description": "An API key, or a token of a configured issuer."}
    return {
        "openapi": "3.1.0",
        "info": {"title": "Tidegate", "version": "1", "description": _INTRODUCTION},
        "paths": paths,
        "components": {"schemas": {**models["$defs"], "Error": error}, "securitySchemes": {"credential": credential}},
    }


def _refer(schema: str) -> Json:
    return {"$ref": f"#/components/schemas/{schema}"}


def _parameter(name: str) -> Json:
    return {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}

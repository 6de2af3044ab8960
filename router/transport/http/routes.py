"""Every path of the HTTP door. Read this first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

from starlette.middleware.cors import CORSMiddleware
from starlette.routing import Route, Router, WebSocketRoute
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.websockets import WebSocketClose

from router.errors import protocol_violated
from router.transport.http.answers import Answers
from router.transport.http.catalogue import Catalogue
from router.transport.http.endpoint import Endpoint
from router.transport.http.exchange import Exchange
from router.transport.http.gate import Gate
from router.transport.http.openapi import Documents
from router.transport.http.probes import Probes
from router.transport.http.socket import ConverseSocket


def build_routes(
    *, gate: Gate, answers: Answers, catalogue: Catalogue, socket: ConverseSocket, probes: Probes, allowed_origins: Sequence[str]
) -> ASGIApp:
    """The application that a server runs."""
    documents = Documents()
    routes = [
        WebSocketRoute("/v1/converse", socket),
        Route("/v1/converse", Endpoint(GET=_refuse_plain)),
        Route("/v1/chat/completions", Endpoint(gate.admit, POST=answers.chat)),
        Route("/v1/completions", Endpoint(gate.admit, POST=answers.complete)),
        Route("/v1/embeddings", Endpoint(gate.admit, POST=_refuse_embeddings)),
        Route("/v1/responses", Endpoint(gate.admit, POST=_refuse_responses)),
        Route("/v1/models", Endpoint(gate.admit, GET=catalogue.list_models)),
        Route("/v1/models/{name:path}", Endpoint(gate.admit, GET=catalogue.get_model)),
        Route("/healthz", Endpoint(GET=probes.tell_alive)),
        Route("/readyz", Endpoint(GET=probes.tell_ready)),
        Route("/metrics", Endpoint(GET=probes.tell_metrics)),
        Route("/openapi.json", Endpoint(GET=documents.tell_schema)),
        Route("/docs", Endpoint(GET=documents.show_page)),
    ]
    app = _Slashes(Router(routes, redirect_slashes=False, default=_refuse_path))
    if not allowed_origins:
        return app
    return CORSMiddleware(
        app,
        allow_origins=allowed_origins,
        allow_methods=("GET", "POST"),
        allow_headers=("*",),
        expose_headers=("*",),  # OpenAI's client looks whether and when to try again, and quotas go by many names
    )


class _Slashes:
    """Leaves out needless slashes: clients whose base URL ends with one write two, and a redirect would lose the body."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope.get("path", "")
        if path.endswith("/") or "//" in path:
            scope = {**scope, "path": "/" + "/".join(filter(None, path.split("/")))}
        await self._app(scope, receive, send)


async def _refuse_embeddings(exchange: Exchange) -> NoReturn:
    raise protocol_violated("ENDPOINT_UNSERVED", "model", "no model for embeddings is served")


async def _refuse_responses(exchange: Exchange) -> NoReturn:
    raise protocol_violated("ENDPOINT_UNSERVED", "path", "the Responses API is not served; use /v1/chat/completions")


async def _refuse_plain(exchange: Exchange) -> None:
    error = protocol_violated("UPGRADE_REQUIRED", "upgrade", "this path is a WebSocket")
    await exchange.refuse(error, [(b"upgrade", b"websocket"), (b"connection", b"upgrade")])


async def _refuse_path(scope: Scope, receive: Receive, send: Send) -> None:
    if scope["type"] == "websocket":
        await WebSocketClose()(scope, receive, send)
    else:
        await Exchange(scope, receive, send).refuse(protocol_violated("PATH_UNKNOWN", "path", "nothing is at this path; see /openapi.json"))

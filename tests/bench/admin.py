"""An AdminService on a real database, in this process. Who calls is said by name: `authorization: Bearer ops` is the operator."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import grpc
from tidegate.v1.admin_service_pb2_grpc import AdminServiceStub, add_AdminServiceServicer_to_server

from router.admin.identity import IdentityAdmin
from router.admin.reports import Reports
from router.admin.terms import TermsAdmin
from router.admin.workers import WorkersAdmin
from router.admission.queue import AdmissionQueue
from router.auth.keys import KeyHash
from router.auth.principal import Principal, Role
from router.errors import unauthenticated
from router.routing.fleet import Fleet
from router.store.database import Database
from router.transport.admin_api import AdminService
from router.transport.requests import ReadingInterceptor, current_call, set_principal
from router.transport.status import StatusInterceptor

KEYS = KeyHash(b"p" * 32)
OPS = Principal("house", "ops", frozenset({Role.OPERATOR}), "opskey")
ADMIN = Principal("acme", "ada", frozenset({Role.TENANT_ADMIN}))
FOREIGN = Principal("globex", "gus", frozenset({Role.TENANT_ADMIN, Role.CALLER}))
CALLER = Principal("acme", "ann", frozenset({Role.CALLER}))
CALLERS = {who.user: who for who in (OPS, ADMIN, FOREIGN, CALLER)}


@dataclass(frozen=True, slots=True)
class AdminBench:
    """The service at `target`, and the parts behind it."""

    database: Database
    identity: IdentityAdmin
    terms: TermsAdmin
    reports: Reports
    workers: WorkersAdmin
    service: AdminService
    target: str
    stub: Any

    async def call(self, rpc: str, request: Any, who: Principal = OPS) -> Any:
        """One call of an RPC that answers once."""
        return await getattr(self.stub, rpc)(request, metadata=[("authorization", f"Bearer {who.user}")])

    def stream(self, rpc: str, request: Any, who: Principal = OPS) -> Any:
        """One call of an RPC that answers with a stream."""
        return getattr(self.stub, rpc)(request, metadata=[("authorization", f"Bearer {who.user}")])


async def admit_by_name(method_name: str) -> None:
    """Believes what a caller says."""
    credential = str(dict(current_call().credentials.headers).get("authorization", ""))
    if credential.removeprefix("Bearer ") not in CALLERS:
        raise unauthenticated()
    set_principal(CALLERS[credential.removeprefix("Bearer ")])


@asynccontextmanager
async def run_admin(
    database: Database,
    queues: Mapping[str, AdmissionQueue] | None = None,
    fleets: Mapping[str, Fleet] | None = None,
    **options: float,
) -> AsyncIterator[AdminBench]:
    """Serves until the block ends; `options` are AdminService's."""
    identity, terms, reports = IdentityAdmin(database, KEYS, time.time), TermsAdmin(database, time.time), Reports(database, queues or {})
    workers = WorkersAdmin(database, fleets or {}, lambda: ())
    service = AdminService(identity, terms, reports, workers, **options)
    server = grpc.aio.server(interceptors=(ReadingInterceptor(64 * 1024), StatusInterceptor(admit_by_name)))
    add_AdminServiceServicer_to_server(service, server)  # type: ignore[no-untyped-call]
    target = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    await server.start()
    try:
        async with grpc.aio.insecure_channel(target) as channel:
            stub = AdminServiceStub(channel)  # type: ignore[no-untyped-call]
            yield AdminBench(database, identity, terms, reports, workers, service, target, stub)
    finally:
        service.close()
        await server.stop(0)

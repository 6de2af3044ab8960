"""AdminService over gRPC: translates, and paces the streams. What is allowed and what it does is in router/admin."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import aclosing, suppress
from typing import Any

import grpc
from google.protobuf.message import Message
from tidegate.v1 import admin_service_pb2 as api
from tidegate.v1.admin_service_pb2_grpc import AdminServiceServicer

from router.admin.identity import IdentityAdmin
from router.admin.reports import Reports
from router.admin.terms import TermsAdmin
from router.admin.workers import WorkersAdmin
from router.errors import draining, reader_too_slow
from router.transport.admin_protos import (
    read_amounts,
    read_export,
    read_grant,
    read_overlap,
    read_quota,
    read_usage_query,
    read_valid_from,
    write_audit_entry,
    write_key,
    write_price,
    write_queue,
    write_quota,
    write_tenant,
    write_usage_day,
    write_user,
    write_worker,
)
from router.transport.paging import read_date, read_moment, read_number, read_page, read_text, write_token
from router.transport.requests import current_principal, readable

Context = grpc.aio.ServicerContext[Any, Any]


class AdminService(AdminServiceServicer):
    """The administrators' service."""

    def __init__(
        self,
        identity: IdentityAdmin,
        terms: TermsAdmin,
        reports: Reports,
        workers: WorkersAdmin,
        *,
        slow_reader_s: float = 30.0,
        watch_s: float = 1.0,
    ) -> None:
        self._identity = identity
        self._terms = terms
        self._reports = reports
        self._workers = workers
        self._slow_reader_s = slow_reader_s
        self._watch_s = watch_s
        self._closed = asyncio.Event()

    def close(self) -> None:
        """Ends the watches, which would not end by themselves, as the router drains."""
        self._closed.set()

    async def PutTenant(self, request: api.PutTenantRequest, context: Context) -> api.PutTenantResponse:
        asked = readable(request)
        name = asked.name if asked.HasField("name") else None
        weight = asked.weight if asked.HasField("weight") else None
        no_downgrade = asked.no_downgrade if asked.HasField("no_downgrade") else None
        row = await self._identity.put_tenant(current_principal(), asked.tenant_id, name, weight, no_downgrade)
        return api.PutTenantResponse(tenant=write_tenant(row))

    async def DisableTenant(self, request: api.DisableTenantRequest, context: Context) -> api.DisableTenantResponse:
        await self._identity.disable_tenant(current_principal(), readable(request).tenant_id, disabled=True)
        return api.DisableTenantResponse()

    async def EnableTenant(self, request: api.EnableTenantRequest, context: Context) -> api.EnableTenantResponse:
        await self._identity.disable_tenant(current_principal(), readable(request).tenant_id, disabled=False)
        return api.EnableTenantResponse()

    async def ListTenants(self, request: api.ListTenantsRequest, context: Context) -> api.ListTenantsResponse:
        page = read_page(readable(request), read_text)
        rows = await self._identity.list_tenants(current_principal(), page)
        token = write_token(rows, page, lambda row: (row.id,))
        return api.ListTenantsResponse(tenants=map(write_tenant, rows), next_page_token=token)

    async def PutUser(self, request: api.PutUserRequest, context: Context) -> api.PutUserResponse:
        asked = readable(request)
        name = asked.name if asked.HasField("name") else None
        row = await self._identity.put_user(current_principal(), asked.tenant_id, asked.user_id, name)
        return api.PutUserResponse(user=write_user(row))

    async def ListUsers(self, request: api.ListUsersRequest, context: Context) -> api.ListUsersResponse:
        page = read_page(readable(request), read_text)
        rows = await self._identity.list_users(current_principal(), request.tenant_id, page)
        return api.ListUsersResponse(users=map(write_user, rows), next_page_token=write_token(rows, page, lambda row: (row.id,)))

    async def CreateKey(self, request: api.CreateKeyRequest, context: Context) -> api.CreateKeyResponse:
        new = await self._identity.create_key(current_principal(), read_grant(readable(request)))
        return api.CreateKeyResponse(key_text=new.text, prefix=new.prefix)

    async def ListKeys(self, request: api.ListKeysRequest, context: Context) -> api.ListKeysResponse:
        page = read_page(readable(request), read_moment, read_text)
        rows = await self._identity.list_keys(current_principal(), request.tenant_id, page, old_pepper=request.old_pepper)
        token = write_token(rows, page, lambda row: (row.created_at, row.prefix))
        return api.ListKeysResponse(keys=[write_key(row, self._identity.is_old(row)) for row in rows], next_page_token=token)

    async def RotateKey(self, request: api.RotateKeyRequest, context: Context) -> api.RotateKeyResponse:
        asked = readable(request)
        new = await self._identity.rotate_key(current_principal(), asked.tenant_id, asked.prefix, read_overlap(asked.overlap))
        return api.RotateKeyResponse(key_text=new.text, prefix=new.prefix)

    async def RevokeKey(self, request: api.RevokeKeyRequest, context: Context) -> api.RevokeKeyResponse:
        asked = readable(request)
        await self._identity.revoke_key(current_principal(), asked.tenant_id, asked.prefix)
        return api.RevokeKeyResponse()

    async def RestrictKey(self, request: api.RestrictKeyRequest, context: Context) -> api.RestrictKeyResponse:
        asked = readable(request)
        models = tuple(asked.models.models) if asked.HasField("models") else None
        await self._identity.restrict_key(current_principal(), asked.tenant_id, asked.prefix, models)
        return api.RestrictKeyResponse()

    async def SetQuota(self, request: api.SetQuotaRequest, context: Context) -> api.SetQuotaResponse:
        quota = readable(request).quota
        await self._terms.set_quota(current_principal(), read_quota(quota.scope, quota.limits))
        return api.SetQuotaResponse()

    async def DeleteQuota(self, request: api.DeleteQuotaRequest, context: Context) -> api.DeleteQuotaResponse:
        await self._terms.delete_quota(current_principal(), read_quota(readable(request).scope))
        return api.DeleteQuotaResponse()

    async def ListQuotas(self, request: api.ListQuotasRequest, context: Context) -> api.ListQuotasResponse:
        page = read_page(readable(request), *[read_text] * 4)
        rows = await self._terms.list_quotas(current_principal(), request.tenant_id, page)
        token = write_token(rows, page, lambda row: (row.tenant, row.user, row.key, row.model))
        return api.ListQuotasResponse(quotas=map(write_quota, rows), next_page_token=token)

    async def AddPrice(self, request: api.AddPriceRequest, context: Context) -> api.AddPriceResponse:
        price = readable(request).price
        row = await self._terms.add_price(current_principal(), price.model, read_valid_from(price), read_amounts(price))
        return api.AddPriceResponse(price=write_price(row))

    async def ListPrices(self, request: api.ListPricesRequest, context: Context) -> api.ListPricesResponse:
        page = read_page(readable(request), read_text, read_moment)
        rows = await self._terms.list_prices(current_principal(), page)
        token = write_token(rows, page, lambda row: (row.model, row.valid_from))
        return api.ListPricesResponse(prices=map(write_price, rows), next_page_token=token)

    async def ListUsageDays(self, request: api.ListUsageDaysRequest, context: Context) -> api.ListUsageDaysResponse:
        page = read_page(readable(request), read_date, *[read_text] * 4)
        rows = await self._reports.list_usage_days(current_principal(), read_usage_query(request.filter), page)
        token = write_token(rows, page, lambda row: (row.day, row.tenant, row.user, row.key, row.model_served))
        return api.ListUsageDaysResponse(days=map(write_usage_day, rows), next_page_token=token)

    async def ExportUsage(self, request: api.ExportUsageRequest, context: Context) -> None:
        query = read_usage_query(readable(request).filter)
        async with aclosing(self._reports.export_usage(current_principal(), query, *read_export(request))) as pieces:
            async for text in pieces:
                await self._write(context, api.ExportUsageResponse(text=text))

    async def ListAudit(self, request: api.ListAuditRequest, context: Context) -> api.ListAuditResponse:
        page = read_page(readable(request), read_number)
        rows = await self._reports.list_audit(current_principal(), request.tenant_id, page)
        token = write_token(rows, page, lambda row: (row.id,))
        return api.ListAuditResponse(entries=map(write_audit_entry, rows), next_page_token=token)

    async def WatchQueues(self, request: api.WatchQueuesRequest, context: Context) -> None:
        readable(request)
        who = current_principal()
        await self._watch(context, lambda: api.WatchQueuesResponse(queues=map(write_queue, self._reports.view_queues(who))))

    async def WatchWorkers(self, request: api.WatchWorkersRequest, context: Context) -> None:
        readable(request)
        who = current_principal()
        await self._watch(context, lambda: api.WatchWorkersResponse(workers=map(write_worker, self._workers.view(who))))

    async def DrainWorker(self, request: api.DrainWorkerRequest, context: Context) -> api.DrainWorkerResponse:
        await self._workers.drain(current_principal(), readable(request).address)
        return api.DrainWorkerResponse()

    async def ResumeWorker(self, request: api.ResumeWorkerRequest, context: Context) -> api.ResumeWorkerResponse:
        await self._workers.resume(current_principal(), readable(request).address)
        return api.ResumeWorkerResponse()

    async def _watch(self, context: Context, look: Callable[[], Message]) -> None:
        """Writes what there is to see, again and again, until the router drains."""
        while not self._closed.is_set():
            await context.write(look())
            with suppress(TimeoutError):
                async with asyncio.timeout(self._watch_s):
                    await self._closed.wait()
        raise draining()

    async def _write(self, context: Context, response: api.ExportUsageResponse) -> None:
        """A caller that does not read must not hold a connection to the database for ever."""
        try:
            async with asyncio.timeout(self._slow_reader_s):
                await context.write(response)
        except TimeoutError:
            raise reader_too_slow() from None

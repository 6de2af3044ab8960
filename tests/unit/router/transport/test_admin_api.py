"""AdminService on the wire: who may call what, what is refused and how, pages and streams."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import grpc
import pytest
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp
from tidegate.errors import from_rpc_error
from tidegate.v1 import admin_pb2 as pb
from tidegate.v1 import admin_service_pb2 as api

from router.auth.keys import KeyHash
from router.auth.principal import Principal
from router.errors import CallerError
from router.model import WorkerLoad
from router.store.audit import AuditStore
from router.store.identity import IdentityStore
from router.store.usage import UsageStore
from router.transport.requests import set_principal
from tests.bench.admin import ADMIN, CALLER, FOREIGN, OPS, AdminBench, run_admin
from tests.bench.calls import failure_of
from tests.bench.postgres import fresh_database, outage
from tests.unit.router.fake_worker import FakeWorker, fleet_of
from tests.unit.router.ledger.entries import START, entry_of
from tests.unit.router.transport.fake_context import FakeContext

METHODS = api.DESCRIPTOR.services_by_name["AdminService"].methods
DAY = datetime.fromtimestamp(START, UTC).date().isoformat()
SCOPE = pb.QuotaScope(tenant_id="acme")
FILTER = api.UsageFilter(tenant_id="acme", first_day=DAY, last_day=DAY)
WORKER = "10.0.0.9:8001"
PRICE = pb.Price(model="m", prompt="1.5", cached="0.15", completion="3")

# A request about acme for each RPC that only operators may call, and for each that acme's admins may call too. A new RPC needs an entry.
FOR_OPERATORS: dict[str, Message] = {
    "PutTenant": api.PutTenantRequest(tenant_id="acme", name="Acme", weight=1),
    "DisableTenant": api.DisableTenantRequest(tenant_id="acme"),
    "EnableTenant": api.EnableTenantRequest(tenant_id="acme"),
    "ListTenants": api.ListTenantsRequest(),
    "SetQuota": api.SetQuotaRequest(quota=pb.Quota(scope=SCOPE, limits=pb.QuotaLimits(tokens_per_day=5))),
    "DeleteQuota": api.DeleteQuotaRequest(scope=SCOPE),
    "AddPrice": api.AddPriceRequest(price=PRICE),
    "ListPrices": api.ListPricesRequest(),
    "WatchQueues": api.WatchQueuesRequest(),
    "WatchWorkers": api.WatchWorkersRequest(),
    "DrainWorker": api.DrainWorkerRequest(address=WORKER),
    "ResumeWorker": api.ResumeWorkerRequest(address=WORKER),
}
FOR_ADMINS: dict[str, Message] = {
    "PutUser": api.PutUserRequest(tenant_id="acme", user_id="ann", name="Ann"),
    "ListUsers": api.ListUsersRequest(tenant_id="acme"),
    "CreateKey": api.CreateKeyRequest(tenant_id="acme", user_id="ann", name="laptop", models=pb.ModelSet(models=["m"])),
    "ListKeys": api.ListKeysRequest(tenant_id="acme"),
    "RotateKey": api.RotateKeyRequest(tenant_id="acme", prefix="k"),
    "RevokeKey": api.RevokeKeyRequest(tenant_id="acme", prefix="k"),
    "RestrictKey": api.RestrictKeyRequest(tenant_id="acme", prefix="k", models=pb.ModelSet(models=["m"])),
    "ListQuotas": api.ListQuotasRequest(tenant_id="acme"),
    "ListUsageDays": api.ListUsageDaysRequest(filter=FILTER),
    "ExportUsage": api.ExportUsageRequest(filter=FILTER),
    "ListAudit": api.ListAuditRequest(tenant_id="acme"),
}
REQUESTS = FOR_OPERATORS | FOR_ADMINS
OF_ALL = {
    "ListKeys": api.ListKeysRequest(),
    "ListQuotas": api.ListQuotasRequest(),
    "ListUsageDays": api.ListUsageDaysRequest(filter=api.UsageFilter(first_day=DAY, last_day=DAY)),
    "ExportUsage": api.ExportUsageRequest(filter=api.UsageFilter(first_day=DAY, last_day=DAY)),
    "ListAudit": api.ListAuditRequest(),
}


@pytest.fixture
async def bench() -> AsyncIterator[AdminBench]:
    worker = FakeWorker(WORKER, busy=2)
    worker.load = WorkerLoad(active=3, queued=1, free_blocks=70, total_blocks=100)
    fleets = {"m": fleet_of(worker)}
    async with fresh_database() as (database, _), run_admin(database, fleets=fleets, watch_s=0.01) as bench:
        await bench.call("PutTenant", api.PutTenantRequest(tenant_id="acme"))
        yield bench


async def reason_of(bench: AdminBench, rpc: str, request: Message, who: Principal = OPS) -> str:
    """The reason for which a call was refused; OK when it was not."""
    call = bench.stream(rpc, request, who)
    try:
        if isinstance(call, grpc.aio.UnaryUnaryCall):
            await call
        else:
            async for _ in call:
                if rpc.startswith("Watch"):
                    break
    except grpc.aio.AioRpcError as error:
        return from_rpc_error(error).reason
    finally:
        call.cancel()
    return "OK"


def test_every_rpc_is_in_the_tables_above() -> None:
    """A new one must be classified, and is then held to all that follows."""
    assert sorted(REQUESTS) == sorted(method.name for method in METHODS)
    assert not FOR_OPERATORS.keys() & FOR_ADMINS.keys()


async def test_an_operator_may_call_everything(bench: AdminBench) -> None:
    """Also what concerns all tenants at once."""
    reasons = [await reason_of(bench, rpc, request) for rpc, request in (*REQUESTS.items(), *OF_ALL.items())]
    assert set(reasons) == {"OK", "KEY_UNKNOWN"}


async def test_a_tenant_admin_may_call_what_concerns_the_own_tenant(bench: AdminBench) -> None:
    """And nothing that concerns others, or all."""
    assert {await reason_of(bench, rpc, request, ADMIN) for rpc, request in FOR_ADMINS.items()} == {"OK", "KEY_UNKNOWN"}
    for rpc, request in (*FOR_OPERATORS.items(), *OF_ALL.items()):
        assert (rpc, await reason_of(bench, rpc, request, ADMIN)) == (rpc, "PERMISSION_DENIED")


@pytest.mark.parametrize("who", [FOREIGN, CALLER], ids=["another tenant's admin", "caller"])
async def test_nobody_else_may_call_anything(bench: AdminBench, who: Principal) -> None:
    """Nor does a refused call leave a trace."""
    before = await AuditStore(bench.database).read()
    for rpc, request in (*REQUESTS.items(), *OF_ALL.items()):
        assert (rpc, await reason_of(bench, rpc, request, who)) == (rpc, "PERMISSION_DENIED")
    assert await AuditStore(bench.database).read() == before


def texts_of(message: Message, path: str = "") -> Iterator[tuple[str, Message, Any]]:
    """Every text field of a message and of those in it that are set, with its path."""
    for field in message.DESCRIPTOR.fields:
        if field.message_type and message.HasField(field.name):
            yield from texts_of(getattr(message, field.name), f"{path}{field.name}.")
        elif field.type == FieldDescriptor.TYPE_STRING:
            yield f"{path}{field.name}", message, field


@pytest.mark.parametrize("text", ["\0", "x" * 20_000, "\u202e"], ids=["nul", "long", "bidi"])
async def test_no_text_field_takes_any_text(bench: AdminBench, text: str) -> None:
    """Whatever the RPC and the field: the caller is told which, and the database never sees it."""
    checked = 0
    for rpc, request in REQUESTS.items():
        for path in [path for path, *_ in texts_of(request)]:
            spoilt = type(request)()
            spoilt.CopyFrom(request)
            _, owner, field = next(it for it in texts_of(spoilt) if it[0] == path)
            if field.is_repeated:
                getattr(owner, field.name)[:] = [text]
            else:
                setattr(owner, field.name, text)
            error = await failure_of(bench.stream(rpc, spoilt))
            assert (rpc, error.reason, [name.partition("[")[0] for name in error.fields]) == (rpc, "FIELD_INVALID", [path])
            checked += 1
    assert checked > 40


NOT_VALUES = [
    ("weight", "PutTenant", api.PutTenantRequest(tenant_id="acme", weight=float("inf"))),
    ("roles[0]", "CreateKey", api.CreateKeyRequest(tenant_id="acme", user_id="ann", roles=[pb.ACCESS_ROLE_UNSPECIFIED])),
    ("roles[1]", "CreateKey", api.CreateKeyRequest(tenant_id="acme", user_id="ann", roles=[pb.ACCESS_ROLE_CALLER, 99])),  # type: ignore[list-item]
    ("expires_at", "CreateKey", api.CreateKeyRequest(tenant_id="acme", user_id="ann", expires_at=Timestamp(seconds=2**62))),
    ("expires_at", "CreateKey", api.CreateKeyRequest(tenant_id="acme", user_id="ann", expires_at=Timestamp())),
    ("overlap", "RotateKey", api.RotateKeyRequest(tenant_id="acme", prefix="k", overlap=Duration(seconds=2**62))),
    ("overlap", "RotateKey", api.RotateKeyRequest(tenant_id="acme", prefix="k", overlap=Duration(seconds=-1))),
    ("quota.limits", "SetQuota", api.SetQuotaRequest(quota=pb.Quota(scope=SCOPE))),
    (
        "quota.limits.tokens_per_day",
        "SetQuota",
        api.SetQuotaRequest(quota=pb.Quota(scope=SCOPE, limits=pb.QuotaLimits(tokens_per_day=2**64 - 1))),
    ),
    ("price.valid_from", "AddPrice", api.AddPriceRequest(price=pb.Price(model="m", valid_from=Timestamp(nanos=-1)))),
    ("filter.first_day", "ListUsageDays", api.ListUsageDaysRequest(filter=api.UsageFilter(first_day="20260101", last_day=DAY))),
    ("filter.last_day", "ExportUsage", api.ExportUsageRequest(filter=api.UsageFilter(first_day=DAY, last_day="2026-01-01"))),
    ("filter.last_day", "ExportUsage", api.ExportUsageRequest(filter=api.UsageFilter(first_day="9999-12-31", last_day="9999-12-31"))),
    ("format", "ExportUsage", api.ExportUsageRequest(filter=FILTER, format=99)),  # type: ignore[arg-type]
    ("row", "ExportUsage", api.ExportUsageRequest(filter=FILTER, row=99)),  # type: ignore[arg-type]
    ("page_size", "ListTenants", api.ListTenantsRequest(page_size=1001)),
]


async def test_a_value_without_meaning_is_told_by_its_field(bench: AdminBench) -> None:
    """Whatever the wire can carry."""
    for field, rpc, request in NOT_VALUES:
        error = await failure_of(bench.stream(rpc, request))
        assert (rpc, error.reason, list(error.fields)) == (rpc, "FIELD_INVALID", [field])


async def test_no_rpc_reads_what_cannot_be_read(bench: AdminBench) -> None:
    """Each tells the caller, and none fails on it."""
    async with grpc.aio.insecure_channel(bench.target) as channel:
        for method in METHODS:
            path = f"/{method.containing_service.full_name}/{method.name}"
            kind: Callable[[str], Callable[..., Any]] = channel.unary_stream if method.server_streaming else channel.unary_unary
            error = await failure_of(kind(path)(b"\xff", metadata=[("authorization", "Bearer ops")]))
            assert (method.name, error.reason) == (method.name, "MESSAGE_UNREADABLE")


def token_of(value: Any) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).decode()


NO_TOKENS = ["?", "é", "AAAA", token_of(1), token_of(["1"]), token_of(["x", "p"]), token_of([DAY, "\0"]), token_of([DAY, "\ud800"])]


async def test_a_token_of_another_listing_is_refused(bench: AdminBench) -> None:
    """Or one that is none."""
    for token in NO_TOKENS:
        error = await failure_of(bench.stream("ListKeys", api.ListKeysRequest(tenant_id="acme", page_token=token)))
        assert (token, error.reason, list(error.fields)) == (token, "FIELD_INVALID", ["page_token"])


async def read_pages(bench: AdminBench, rpc: str, request: Any, field: str, size: int) -> list[Any]:
    """All items of a listing, page by page; a page that is not the last is full."""
    items, request.page_size, request.page_token = [], size, ""
    while True:
        page = await bench.call(rpc, request)
        items += getattr(page, field)
        if not page.next_page_token:
            return items
        assert len(getattr(page, field)) == size
        request.page_token = page.next_page_token


async def test_pages_make_up_the_whole(bench: AdminBench) -> None:
    """In every listing: in order, none twice and none left out."""
    for name in "bac":
        await bench.call("PutTenant", api.PutTenantRequest(tenant_id=name))
        await bench.call("PutUser", api.PutUserRequest(tenant_id="acme", user_id=name))
        await bench.call("CreateKey", api.CreateKeyRequest(tenant_id="acme", user_id=name))
        scope = pb.QuotaScope(tenant_id="acme", model=name)
        await bench.call("SetQuota", api.SetQuotaRequest(quota=pb.Quota(scope=scope, limits=pb.QuotaLimits(tokens_per_day=1))))
        await bench.call("AddPrice", api.AddPriceRequest(price=pb.Price(model=name, prompt="1", cached="0", completion="2")))
    await UsageStore(bench.database).add([entry_of(name, user=name).to_line() for name in "abc"])
    listings: list[tuple[str, Any, str, int]] = [
        ("ListTenants", api.ListTenantsRequest(), "tenants", 4),
        ("ListUsers", api.ListUsersRequest(tenant_id="acme"), "users", 3),
        ("ListKeys", api.ListKeysRequest(tenant_id="acme"), "keys", 3),
        ("ListQuotas", api.ListQuotasRequest(), "quotas", 3),
        ("ListPrices", api.ListPricesRequest(), "prices", 3),
        ("ListUsageDays", api.ListUsageDaysRequest(filter=FILTER), "days", 3),
        ("ListAudit", api.ListAuditRequest(), "entries", 16),
    ]
    assert {rpc for rpc, *_ in listings} == {method.name for method in METHODS if method.name.startswith("List")}
    for rpc, request, field, count in listings:
        whole = await read_pages(bench, rpc, request, field, 1000)
        assert (rpc, len(whole)) == (rpc, count)
        for size in (1, 2, 3):
            assert await read_pages(bench, rpc, request, field, size) == whole


async def test_what_is_unset_stays_unset(bench: AdminBench) -> None:
    """No limit is not a limit of zero, every model is not none, and never is not 1970."""
    limits = pb.QuotaLimits(requests_per_minute=0, money_per_month="0.50")
    await bench.call("SetQuota", api.SetQuotaRequest(quota=pb.Quota(scope=SCOPE, limits=limits)))
    (quota,) = (await bench.call("ListQuotas", api.ListQuotasRequest())).quotas
    assert quota.limits == pb.QuotaLimits(requests_per_minute=0, money_per_month="0.5")
    await bench.call("PutUser", REQUESTS["PutUser"])
    await bench.call("CreateKey", api.CreateKeyRequest(tenant_id="acme", user_id="ann"))
    await bench.call("CreateKey", api.CreateKeyRequest(tenant_id="acme", user_id="ann", models=pb.ModelSet()))
    every, none = (await bench.call("ListKeys", api.ListKeysRequest(tenant_id="acme"))).keys
    assert (every.HasField("models"), none.HasField("models"), list(none.models.models)) == (False, True, [])
    assert not any(every.HasField(field) for field in ("expires_at", "revoked_at"))
    assert list(every.roles) == [pb.ACCESS_ROLE_CALLER]


async def test_keys_of_a_pepper_of_before_are_told(bench: AdminBench) -> None:
    """By a mark on each, and on their own: these end with the pepper if they are not used before."""
    await bench.call("PutUser", REQUESTS["PutUser"])
    old, new = [(await bench.call("CreateKey", REQUESTS["CreateKey"])).prefix for _ in range(2)]
    await IdentityStore(bench.database).renew_key(old, KeyHash(b"o" * 32).digests("any"))
    listed = await bench.call("ListKeys", api.ListKeysRequest())
    assert {key.prefix: key.old_pepper for key in listed.keys} == {old: True, new: False}
    for who, tenant in ((OPS, ""), (OPS, "acme"), (ADMIN, "acme")):
        only = await bench.call("ListKeys", api.ListKeysRequest(tenant_id=tenant, old_pepper=True), who)
        assert [key.prefix for key in only.keys] == [old]
    await bench.call("RevokeKey", api.RevokeKeyRequest(tenant_id="acme", prefix=old))
    assert not (await bench.call("ListKeys", api.ListKeysRequest(old_pepper=True))).keys


async def test_a_key_is_told_once(bench: AdminBench) -> None:
    """Its text is in the answer that made it and in no other, and the new key has the old one's rights."""
    until = datetime.now(UTC) + timedelta(days=3)
    roles = [pb.ACCESS_ROLE_CALLER, pb.ACCESS_ROLE_TENANT_ADMIN]
    await bench.call("PutUser", REQUESTS["PutUser"])
    request = api.CreateKeyRequest(
        tenant_id="acme", user_id="ann", name="ci", roles=roles, models=pb.ModelSet(models=["m"]), expires_at=until
    )
    made = await bench.call("CreateKey", request)
    rotated = await bench.call("RotateKey", api.RotateKeyRequest(tenant_id="acme", prefix=made.prefix, overlap=timedelta(hours=1)))
    answers = [await bench.call(rpc, REQUESTS[rpc]) for rpc in ("ListKeys", "ListAudit")]
    assert not any(key.key_text[-43:] in str(answers) for key in (made, rotated))
    old, new = answers[0].keys
    assert (old.prefix, new.prefix) == (made.prefix, rotated.prefix)
    assert (new.roles, new.models, new.name, new.expires_at.ToDatetime(UTC)) == (roles, request.models, "ci", until)
    assert timedelta(minutes=59) < old.expires_at.ToDatetime(UTC) - datetime.now(UTC) <= timedelta(hours=1)


async def test_an_export_comes_in_pieces(bench: AdminBench) -> None:
    """Which together are the whole text, whatever the message size of either side."""
    await UsageStore(bench.database).add([entry_of(f"turn-{number:04}").to_line() for number in range(1000)])
    pieces = [piece.text async for piece in bench.stream("ExportUsage", REQUESTS["ExportUsage"], ADMIN)]
    lines = "".join(pieces).splitlines()
    assert len(pieces) > 1
    assert [line.partition(",")[0] for line in lines] == ["turn", *(f"turn-{number:04}" for number in range(1000))]


class StuckContext(FakeContext):
    """A caller that does not read."""

    async def write(self, response: Any) -> None:
        await asyncio.Event().wait()


async def test_an_export_that_is_not_read_ends() -> None:
    """Else its connection to the database would be held for as long as the caller likes."""
    async with fresh_database() as (database, _), run_admin(database, slow_reader_s=0.01) as bench:
        set_principal(OPS)
        with pytest.raises(CallerError) as caught:
            await bench.service.ExportUsage(api.ExportUsageRequest(filter=FILTER), StuckContext())  # type: ignore[arg-type]
        assert caught.value.reason == "READER_TOO_SLOW"
        assert await reason_of(bench, "ExportUsage", REQUESTS["ExportUsage"]) == "OK"


@pytest.mark.parametrize("rpc", ["WatchQueues", "WatchWorkers"])
async def test_a_watch_goes_on_until_the_router_drains(bench: AdminBench, rpc: str) -> None:
    """Then it ends by itself, with the status that says to connect elsewhere."""
    watch = bench.stream(rpc, REQUESTS[rpc])
    snapshots = aiter(watch)
    first, *others = [await anext(snapshots) for _ in range(3)]
    assert others == [first] * 2
    bench.service.close()
    assert (await failure_of(watch)).reason == "DRAINING"


async def test_workers_are_shown_with_all_that_is_known_of_them(bench: AdminBench) -> None:
    """No field is left out: what the worker tells, what the router thinks of it, and this router's turns there."""
    (worker,) = (await anext(aiter(bench.stream("WatchWorkers", api.WatchWorkersRequest())))).workers
    assert worker == pb.Worker(
        model="m",
        address=WORKER,
        phase=pb.WORKER_PHASE_SERVING,
        up=True,
        silence=timedelta(),
        engine="scripted",
        profile="fast",
        slots=8,
        active_turns=3,
        queued_turns=1,
        router_turns=2,
        used_blocks=30,
        total_blocks=100,
        pace=1.0,
    )


async def test_a_database_that_is_away_is_told_as_such() -> None:
    """With the time after which to come again."""
    async with fresh_database() as (database, dsn), run_admin(database) as bench, outage(dsn):
        error = await failure_of(bench.stream("ListTenants", api.ListTenantsRequest()))
        assert (error.code, error.reason, error.retry_after) == (grpc.StatusCode.UNAVAILABLE, "STORE_AWAY", 1.0)

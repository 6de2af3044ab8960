"""Administration's protos as domain values, and rows as protos. A value that means nothing is FIELD_INVALID; limits are the policy's."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp
from tidegate.v1 import admin_pb2 as pb
from tidegate.v1 import admin_service_pb2 as api

from router.admin.checks import read_money
from router.admin.reports import ExportForm, ExportRows, QueueView, UsageQuery
from router.admin.workers import ModelWorker
from router.auth.issue import KeyGrant
from router.auth.principal import Role, read_roles
from router.errors import Violation, field_invalid
from router.routing.table import Phase
from router.store.rows import AuditRow, KeyRow, PriceRow, QuotaRow, TenantRow, UsageDayRow, UserRow
from router.store.usage import Whose

_NO_LIMITS = pb.QuotaLimits()


def read_grant(request: api.CreateKeyRequest) -> KeyGrant:
    """What a new key is for. Raises CallerError FIELD_INVALID."""
    return KeyGrant(
        tenant=request.tenant_id,
        user=request.user_id,
        name=request.name,
        roles=frozenset(_read_role(f"roles[{index}]", role) for index, role in enumerate(request.roles)) or frozenset({Role.CALLER}),
        models=tuple(request.models.models) if request.HasField("models") else None,
        expires_at=_read_time("expires_at", request.expires_at) if request.HasField("expires_at") else None,
    )


def read_quota(scope: pb.QuotaScope, limits: pb.QuotaLimits = _NO_LIMITS) -> QuotaRow:
    """A scope and its limits. Raises CallerError FIELD_INVALID."""
    set_limits = {field.name: value for field, value in limits.ListFields()}
    if limits.HasField("money_per_month"):
        set_limits["money_per_month"] = read_money("quota.limits.money_per_month", limits.money_per_month)
    return QuotaRow(scope.tenant_id, scope.user_id, scope.key_prefix, scope.model, **set_limits)


def read_amounts(price: pb.Price) -> tuple[Decimal, Decimal, Decimal]:
    """Prices of prompt, cached and completion tokens. Raises CallerError FIELD_INVALID."""
    prompt, cached, completion = (read_money(f"price.{name}", getattr(price, name)) for name in ("prompt", "cached", "completion"))
    return prompt, cached, completion


def read_valid_from(price: pb.Price) -> datetime | None:
    """When a price begins; None is now. Raises CallerError FIELD_INVALID."""
    return _read_time("price.valid_from", price.valid_from) if price.HasField("valid_from") else None


def read_usage_query(asked: api.UsageFilter) -> UsageQuery:
    """Which usage. Raises CallerError FIELD_INVALID."""
    whose = Whose(asked.tenant_id, asked.user_id, asked.key_prefix, asked.model)
    return UsageQuery(whose, _read_day("filter.first_day", asked.first_day), _read_day("filter.last_day", asked.last_day))


def read_export(request: api.ExportUsageRequest) -> tuple[ExportRows, ExportForm]:
    """What an export looks like. Raises CallerError FIELD_INVALID."""
    try:
        return _EXPORT_ROWS[request.row], _EXPORT_FORMS[request.format]
    except KeyError:
        raise field_invalid(Violation("format" if request.row in _EXPORT_ROWS else "row", "must be a known value")) from None


def read_overlap(overlap: Duration) -> timedelta:
    """How long an old key goes on. Raises CallerError FIELD_INVALID."""
    try:
        return overlap.ToTimedelta()
    except (ValueError, OverflowError):
        raise field_invalid(Violation("overlap", "must be a valid duration")) from None


def write_tenant(row: TenantRow) -> pb.Tenant:
    """A tenant."""
    return pb.Tenant(
        tenant_id=row.id,
        name=row.name,
        weight=row.weight,
        created_at=row.created_at,
        disabled_at=row.disabled_at,
        no_downgrade=row.no_downgrade,
    )


def write_user(row: UserRow) -> pb.User:
    """A user."""
    return pb.User(tenant_id=row.tenant, user_id=row.id, name=row.name, created_at=row.created_at)


def write_key(row: KeyRow, old_pepper: bool) -> pb.ApiKey:
    """A key without its digest."""
    roles = read_roles(row.roles)
    return pb.ApiKey(
        prefix=row.prefix,
        tenant_id=row.tenant,
        user_id=row.user,
        name=row.name,
        roles=[number for number, role in _ROLES.items() if role in roles],
        models=None if row.models is None else pb.ModelSet(models=row.models),
        created_at=row.created_at,
        expires_at=row.expires_at,
        revoked_at=row.revoked_at,
        old_pepper=old_pepper,
    )


def write_quota(row: QuotaRow) -> pb.Quota:
    """A quota; a limit that is not set stays unset."""
    return pb.Quota(
        scope=pb.QuotaScope(tenant_id=row.tenant, user_id=row.user, key_prefix=row.key, model=row.model),
        limits=pb.QuotaLimits(
            requests_per_minute=row.requests_per_minute,
            input_tokens_per_minute=row.input_tokens_per_minute,
            output_tokens_per_minute=row.output_tokens_per_minute,
            tokens_per_day=row.tokens_per_day,
            concurrent_turns=row.concurrent_turns,
            money_per_month=None if row.money_per_month is None else _write_money(row.money_per_month),
        ),
    )


def write_price(row: PriceRow) -> pb.Price:
    """A price."""
    prompt, cached, completion = (_write_money(amount) for amount in (row.prompt, row.cached, row.completion))
    return pb.Price(model=row.model, valid_from=row.valid_from, prompt=prompt, cached=cached, completion=completion)


def write_usage_day(row: UsageDayRow) -> pb.UsageDay:
    """Sums of a day."""
    return pb.UsageDay(
        day=row.day.isoformat(),
        tenant_id=row.tenant,
        user_id=row.user,
        key_prefix=row.key,
        model=row.model_served,
        turns=row.turns,
        unpriced_turns=row.unpriced_turns,
        prompt_tokens=row.prompt_tokens,
        cached_tokens=row.cached_tokens,
        completion_tokens=row.completion_tokens,
        cost=_write_money(row.cost),
    )


def write_audit_entry(row: AuditRow) -> pb.AuditEntry:
    """A change."""
    return pb.AuditEntry(
        entry_id=row.id,
        at=row.at,
        actor=row.actor,
        action=row.action,
        tenant_id=row.tenant,
        target=row.target,
        detail_json=json.dumps(row.detail, ensure_ascii=False, sort_keys=True),
    )


def write_queue(view: QueueView) -> pb.ModelQueue:
    """A queue."""
    tenants = [
        pb.QueueTenant(tenant_id=tenant.tenant, waiting=tenant.waiting, running=tenant.running, counter=tenant.counter)
        for tenant in view.tenants
    ]
    return pb.ModelQueue(model=view.model, waiting=view.waiting, running=view.running, slots=view.slots, tenants=tenants)


def write_worker(seen: ModelWorker) -> pb.Worker:
    """A worker."""
    worker, load = seen.worker, seen.worker.load
    return pb.Worker(
        model=seen.model,
        address=worker.address,
        phase=_PHASES[worker.phase],
        up=worker.up,
        ejected=worker.ejected,
        silence=timedelta(seconds=worker.silence_s),
        engine=worker.engine,
        profile=worker.profile,
        slots=worker.slots,
        active_turns=load.active,
        queued_turns=load.queued,
        router_turns=worker.running,
        used_blocks=load.total_blocks - load.free_blocks,
        total_blocks=load.total_blocks,
        pace=worker.pace,
        prefix_error=worker.prefix_error,
    )


def _read_role(field: str, number: pb.AccessRole) -> Role:
    role = _ROLES.get(number)
    if role is None:
        raise field_invalid(Violation(field, "must be set to a known role"))
    return role


def _read_time(field: str, time: Timestamp) -> datetime:
    try:
        return time.ToDatetime(UTC)
    except (ValueError, OverflowError):
        raise field_invalid(Violation(field, "must be a valid time")) from None


def _read_day(field: str, text: str) -> date:
    try:
        day = date.fromisoformat(text)
    except ValueError:
        day = None
    if day is None or day.isoformat() != text:
        raise field_invalid(Violation(field, "must be a day like 2026-01-31"))
    return day


def _write_money(amount: Decimal) -> str:
    """Exact, without the zeros that the column's scale adds."""
    text = f"{amount:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


_ROLES = {
    pb.ACCESS_ROLE_CALLER: Role.CALLER,
    pb.ACCESS_ROLE_TENANT_ADMIN: Role.TENANT_ADMIN,
    pb.ACCESS_ROLE_OPERATOR: Role.OPERATOR,
}
_PHASES = {
    Phase.SERVING: pb.WORKER_PHASE_SERVING,
    Phase.DRAINING: pb.WORKER_PHASE_DRAINING,
    Phase.LEAVING: pb.WORKER_PHASE_LEAVING,
    None: pb.WORKER_PHASE_ABSENT,
}
_EXPORT_ROWS = {
    api.EXPORT_ROW_UNSPECIFIED: ExportRows.TURNS,
    api.EXPORT_ROW_TURN: ExportRows.TURNS,
    api.EXPORT_ROW_DAY: ExportRows.DAYS,
}
_EXPORT_FORMS = {
    api.EXPORT_FORMAT_UNSPECIFIED: ExportForm.CSV,
    api.EXPORT_FORMAT_CSV: ExportForm.CSV,
    api.EXPORT_FORMAT_JSON: ExportForm.JSON,
}

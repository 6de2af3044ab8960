"""Subcommands about quotas and prices."""

from __future__ import annotations

from argparse import Namespace
from typing import Any

from tidegate.admin.arguments import Command, argument, count, moment, prefix
from tidegate.admin.identity import ANY_TENANT, TENANT
from tidegate.admin.output import Column, print_done, print_items
from tidegate.admin.router import Router
from tidegate.v1 import admin_pb2 as pb
from tidegate.v1 import admin_service_pb2 as api

NARROWER = (
    argument("--user", default="", help="only this user's use"),
    argument("--key-prefix", type=prefix, default="", metavar="PREFIX", help="only the use with this key"),
    argument("--model", default="", help="only the use of this model"),
)
_LIMITS = tuple(field.name for field in pb.QuotaLimits.DESCRIPTOR.fields)


async def set_quota(router: Router, asked: Namespace) -> None:
    """Set all limits of a tenant's use, or of a part of it, in place of those it had. What is left out is not limited."""
    limits = pb.QuotaLimits(**{name: getattr(asked, name) for name in _LIMITS})
    scope = _read_scope(asked)
    answer = await router.call("SetQuota", api.SetQuotaRequest(quota=pb.Quota(scope=scope, limits=limits)))
    print_done(answer, f"limits are set for {_tell_scope(scope)}", as_json=asked.json)


async def delete_quota(router: Router, asked: Namespace) -> None:
    """Lift all limits of a tenant's use, or of a part of it."""
    scope = _read_scope(asked)
    answer = await router.call("DeleteQuota", api.DeleteQuotaRequest(scope=scope))
    print_done(answer, f"limits are lifted for {_tell_scope(scope)}", as_json=asked.json)


async def list_quotas(router: Router, asked: Namespace) -> None:
    """List quotas."""
    quotas = await router.list("ListQuotas", api.ListQuotasRequest(tenant_id=asked.tenant), "quotas")
    print_items(quotas, _QUOTA_COLUMNS, as_json=asked.json)


async def add_price(router: Router, asked: Namespace) -> None:
    """Set what a million tokens of a model cost from now or a later time on."""
    price = pb.Price(model=asked.model, valid_from=asked.valid_from, prompt=asked.prompt, cached=asked.cached, completion=asked.completion)
    answer = await router.call("AddPrice", api.AddPriceRequest(price=price))
    print_done(answer.price, f"{asked.model} has a new price from {answer.price.valid_from.ToJsonString()}", as_json=asked.json)


async def list_prices(router: Router, asked: Namespace) -> None:
    """List all prices, past ones too."""
    print_items(await router.list("ListPrices", api.ListPricesRequest(), "prices"), _PRICE_COLUMNS, as_json=asked.json)


def _read_scope(asked: Namespace) -> pb.QuotaScope:
    return pb.QuotaScope(tenant_id=asked.tenant, user_id=asked.user, key_prefix=asked.key_prefix, model=asked.model)


def _tell_scope(scope: pb.QuotaScope) -> str:
    parts = (("user", scope.user_id), ("key", scope.key_prefix), ("model", scope.model))
    return " ".join([f"tenant {scope.tenant_id}", *(f"{kind} {name}" for kind, name in parts if name)])


def _limit(title: str, name: str) -> Column:
    def read(quota: Any) -> Any:
        return getattr(quota.limits, name) if quota.limits.HasField(name) else None

    return title, read


_QUOTA_COLUMNS: tuple[Column, ...] = (
    ("TENANT", lambda it: it.scope.tenant_id),
    ("USER", lambda it: it.scope.user_id),
    ("KEY", lambda it: it.scope.key_prefix),
    ("MODEL", lambda it: it.scope.model),
    _limit("REQ/MIN", "requests_per_minute"),
    _limit("IN/MIN", "input_tokens_per_minute"),
    _limit("OUT/MIN", "output_tokens_per_minute"),
    _limit("TOKENS/DAY", "tokens_per_day"),
    _limit("AT ONCE", "concurrent_turns"),
    _limit("MONEY/MONTH", "money_per_month"),
)
_PRICE_COLUMNS: tuple[Column, ...] = (
    ("MODEL", lambda it: it.model),
    ("FROM", lambda it: it.valid_from),
    ("PROMPT", lambda it: it.prompt),
    ("CACHED", lambda it: it.cached),
    ("COMPLETION", lambda it: it.completion),
)

COMMANDS = (
    Command(
        "quota set",
        set_quota,
        (
            TENANT,
            *NARROWER,
            argument("--requests-per-minute", type=count, metavar="N", help="turns a minute; 0 lets nothing pass"),
            argument("--input-tokens-per-minute", type=count, metavar="N", help="prompt tokens a minute"),
            argument("--output-tokens-per-minute", type=count, metavar="N", help="tokens of answers a minute"),
            argument("--tokens-per-day", type=count, metavar="N", help="tokens of both kinds a day"),
            argument("--concurrent-turns", type=count, metavar="N", help="turns at once"),
            argument("--money-per-month", metavar="AMOUNT", help="money in 30 days, 250 or 0.5"),
        ),
    ),
    Command("quota delete", delete_quota, (TENANT, *NARROWER)),
    Command("quota list", list_quotas, (ANY_TENANT,)),
    Command(
        "price add",
        add_price,
        (
            argument("model", help="name of the model"),
            argument("--prompt", required=True, metavar="AMOUNT", help="for a million prompt tokens, 1.5 for example"),
            argument("--cached", required=True, metavar="AMOUNT", help="for a million prompt tokens from the cache"),
            argument("--completion", required=True, metavar="AMOUNT", help="for a million tokens of answers"),
            argument("--from", dest="valid_from", type=moment, metavar="WHEN", help="2027-01-31 or 2027-01-31T12:00:00Z (default: now)"),
        ),
    ),
    Command("price list", list_prices),
)

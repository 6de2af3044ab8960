"""Subcommands about tenants, users and keys."""

from __future__ import annotations

import sys
from argparse import BooleanOptionalAction, Namespace
from typing import Any

from tidegate.admin.arguments import Command, argument, duration, expiry, prefix
from tidegate.admin.output import Column, name_of, print_done, print_items
from tidegate.admin.router import Fault, Router
from tidegate.v1 import admin_pb2 as pb
from tidegate.v1 import admin_service_pb2 as api

TENANT = argument("tenant", help="id of the tenant")
ANY_TENANT = argument("tenant", nargs="?", default="", help="id of the tenant; all, for operators, when left out")
_USER = argument("user", help="id of the user")
_PREFIX = argument("prefix", type=prefix, help="prefix of the key, as `key list` shows it")
_NAME = argument("--name", help="name for people; the id, for a new one, when left out")
_MODELS = (
    argument("--model", action="append", metavar="MODEL", help="a model that it may use; repeat for several"),
    argument("--no-models", action="store_true", help="it may use no model"),
    argument("--all-models", action="store_true", help="it may use every model"),
)
_ROLES = {
    name_of(pb.AccessRole.DESCRIPTOR, role): role for role in (pb.ACCESS_ROLE_CALLER, pb.ACCESS_ROLE_TENANT_ADMIN, pb.ACCESS_ROLE_OPERATOR)
}


async def put_tenant(router: Router, asked: Namespace) -> None:
    """Add a tenant, or change what is given of one."""
    no_downgrade = None if asked.downgrade is None else not asked.downgrade
    request = api.PutTenantRequest(tenant_id=asked.tenant, name=asked.name, weight=asked.weight, no_downgrade=no_downgrade)
    tenant = (await router.call("PutTenant", request)).tenant
    text = f"tenant {tenant.tenant_id}: name {tenant.name}, weight {tenant.weight:g}, downgrades {_tell_downgrades(tenant)}"
    print_done(tenant, text, as_json=asked.json)


async def list_tenants(router: Router, asked: Namespace) -> None:
    """List all tenants."""
    print_items(await router.list("ListTenants", api.ListTenantsRequest(), "tenants"), _TENANT_COLUMNS, as_json=asked.json)


async def disable_tenant(router: Router, asked: Namespace) -> None:
    """Shut a tenant out."""
    answer = await router.call("DisableTenant", api.DisableTenantRequest(tenant_id=asked.tenant))
    print_done(answer, f"tenant {asked.tenant} is disabled", as_json=asked.json)


async def enable_tenant(router: Router, asked: Namespace) -> None:
    """Let a disabled tenant in again."""
    answer = await router.call("EnableTenant", api.EnableTenantRequest(tenant_id=asked.tenant))
    print_done(answer, f"tenant {asked.tenant} is enabled", as_json=asked.json)


async def put_user(router: Router, asked: Namespace) -> None:
    """Add a user to a tenant, or rename one."""
    answer = await router.call("PutUser", api.PutUserRequest(tenant_id=asked.tenant, user_id=asked.user, name=asked.name))
    print_done(answer.user, f"user {answer.user.user_id} of {asked.tenant}: name {answer.user.name}", as_json=asked.json)


async def list_users(router: Router, asked: Namespace) -> None:
    """List a tenant's users."""
    users = await router.list("ListUsers", api.ListUsersRequest(tenant_id=asked.tenant), "users")
    print_items(users, _USER_COLUMNS, as_json=asked.json)


async def create_key(router: Router, asked: Namespace) -> None:
    """Make a key for a user and print it, this once."""
    request = api.CreateKeyRequest(
        tenant_id=asked.tenant,
        user_id=asked.user,
        name=asked.name,
        roles=[_ROLES[role] for role in asked.role],
        models=_read_models(asked),
        expires_at=asked.expires,
    )
    _print_key(await router.call("CreateKey", request), asked)


async def list_keys(router: Router, asked: Namespace) -> None:
    """List keys, also those that have ended."""
    keys = await router.list("ListKeys", api.ListKeysRequest(tenant_id=asked.tenant, old_pepper=asked.old_pepper), "keys")
    print_items(keys, _KEY_COLUMNS, as_json=asked.json)


async def rotate_key(router: Router, asked: Namespace) -> None:
    """Make a key in place of another and print it, this once."""
    request = api.RotateKeyRequest(tenant_id=asked.tenant, prefix=asked.prefix, overlap=asked.overlap)
    _print_key(await router.call("RotateKey", request), asked)


async def revoke_key(router: Router, asked: Namespace) -> None:
    """End a key for good."""
    answer = await router.call("RevokeKey", api.RevokeKeyRequest(tenant_id=asked.tenant, prefix=asked.prefix))
    print_done(answer, f"key {asked.prefix} is revoked", as_json=asked.json)


async def restrict_key(router: Router, asked: Namespace) -> None:
    """Change the models that a key may use."""
    if not (asked.model or asked.no_models or asked.all_models):
        raise Fault("give --model, --no-models or --all-models")
    request = api.RestrictKeyRequest(tenant_id=asked.tenant, prefix=asked.prefix, models=_read_models(asked))
    answer = await router.call("RestrictKey", request)
    print_done(answer, f"key {asked.prefix} may use {_tell_models(request)}", as_json=asked.json)


def _read_models(asked: Namespace) -> pb.ModelSet | None:
    if bool(asked.model) + asked.no_models + asked.all_models > 1:
        raise Fault("--model, --no-models and --all-models exclude each other")
    return pb.ModelSet(models=asked.model) if asked.model or asked.no_models else None


def _tell_models(item: Any) -> str:
    return (" ".join(item.models.models) or "no model") if item.HasField("models") else "all models"


def _tell_downgrades(tenant: Any) -> str:
    return "forbidden" if tenant.no_downgrade else "allowed"


def _print_key(answer: Any, asked: Namespace) -> None:
    """The key alone on standard output, so that it can go to a file."""
    print_done(answer, answer.key_text, as_json=asked.json)
    print(f"This is shown once. The key is named {answer.prefix} from now on.", file=sys.stderr)


def _optional(field: str) -> Column:
    return field.removesuffix("_at").upper(), lambda item: getattr(item, field) if item.HasField(field) else None


_TENANT_COLUMNS: tuple[Column, ...] = (
    ("TENANT", lambda it: it.tenant_id),
    ("NAME", lambda it: it.name),
    ("WEIGHT", lambda it: it.weight),
    ("DOWNGRADES", _tell_downgrades),
    _optional("created_at"),
    _optional("disabled_at"),
)
_USER_COLUMNS: tuple[Column, ...] = (("USER", lambda it: it.user_id), ("NAME", lambda it: it.name), _optional("created_at"))
_KEY_COLUMNS: tuple[Column, ...] = (
    ("PREFIX", lambda it: it.prefix),
    ("TENANT", lambda it: it.tenant_id),
    ("USER", lambda it: it.user_id),
    ("NAME", lambda it: it.name),
    ("ROLES", lambda it: " ".join(name_of(pb.AccessRole.DESCRIPTOR, role) for role in it.roles)),
    ("MODELS", _tell_models),
    ("PEPPER", lambda it: "old" if it.old_pepper else "current"),
    _optional("created_at"),
    _optional("expires_at"),
    _optional("revoked_at"),
)

COMMANDS = (
    Command(
        "tenant put",
        put_tenant,
        (
            TENANT,
            _NAME,
            argument("--weight", type=float, help="share of busy workers, 0.001 to 1000"),
            argument(
                "--downgrade",
                action=BooleanOptionalAction,
                help="whether a smaller model may answer while the one asked for is down or too busy (it may, until you say no)",
            ),
        ),
    ),
    Command("tenant list", list_tenants),
    Command("tenant disable", disable_tenant, (TENANT,)),
    Command("tenant enable", enable_tenant, (TENANT,)),
    Command("user put", put_user, (TENANT, _USER, _NAME)),
    Command("user list", list_users, (TENANT,)),
    Command(
        "key create",
        create_key,
        (
            TENANT,
            _USER,
            argument("--name", default="", help="name for people, `laptop` for example"),
            argument("--role", action="append", default=[], choices=_ROLES, help="what it is for; repeat for several (default: caller)"),
            *_MODELS,
            argument(
                "--expires", type=expiry, metavar="WHEN", help="when it ends: 90d, 2027-01-31 or 2027-01-31T12:00:00Z (default: never)"
            ),
        ),
    ),
    Command(
        "key list",
        list_keys,
        (
            ANY_TENANT,
            argument("--old-pepper", action="store_true", help="only those in force that have not been used since the pepper was changed"),
        ),
    ),
    Command(
        "key rotate",
        rotate_key,
        (
            TENANT,
            _PREFIX,
            argument("--overlap", type=duration, default=duration("1h"), help="how long the old key goes on working (default: 1h)"),
        ),
    ),
    Command("key revoke", revoke_key, (TENANT, _PREFIX)),
    Command("key restrict", restrict_key, (TENANT, _PREFIX, *_MODELS)),
)

"""The identity check from its configuration."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from router import auth_config, config
from router.auth.authenticate import Authenticator
from router.auth.directory import Directory, KeySource
from router.auth.discovery import discovery_url, fetch_discovered_keys
from router.auth.fetch import Fetch, Fetcher, check_url
from router.auth.jwks import KeySet
from router.auth.keys import KeyHash, load_peppers
from router.auth.mtls import ServiceCertificates
from router.auth.principal import Principal, Role
from router.auth.refusals import Refusals
from router.auth.tokens import Issuer, TokenVerifier

ANONYMOUS = Principal("local", "anonymous", frozenset({Role.CALLER}))
"""Who callers without credentials are, where they are let in."""


@dataclass(frozen=True, slots=True)
class Identity:
    """The check and what it stands on."""

    authenticator: Authenticator
    keys: KeyHash
    directory: Directory
    key_sets: tuple[KeySet, ...]
    executor: ThreadPoolExecutor

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Identity]:
        """Follows the changes of keys, and ends fetches when left. Does not wait for issuers, nor fail when they are away."""
        try:
            for keys in self.key_sets:
                keys.renew()
            async with self.directory.running():
                yield self
        finally:
            await asyncio.gather(*(keys.close() for keys in self.key_sets))
            self.executor.shutdown(wait=False)


def assemble_identity(auth: auth_config.Auth, folder: Path, source: KeySource, refusals: Refusals) -> Identity:
    """All that an Authenticator needs; `folder` holds the keys' pepper. Raises ConfigInvalid."""
    keys = build_key_hash(folder)
    executor = ThreadPoolExecutor(max_workers=2, thread_name_prefix="key-sets")
    fetcher = Fetcher(executor)
    issuers = [(_read_issuer(it), build_key_set(it, fetcher.fetch)) for it in auth.issuers]
    directory = Directory(source, clock=time.monotonic, grace_s=auth.grace_s)
    authenticator = Authenticator(
        keys,
        directory,
        TokenVerifier(issuers, time.time),
        ServiceCertificates({it.name: Principal(it.tenant, it.user, frozenset(map(Role, it.roles))) for it in auth.services}),
        refusals,
        now=time.time,
        anonymous=ANONYMOUS if auth.anonymous else None,
    )
    return Identity(authenticator, keys, directory, tuple(keys for _, keys in issuers), executor)


def build_key_hash(folder: Path, environment: Mapping[str, str] = os.environ) -> KeyHash:
    """What keys are hashed with: secrets of the environment, or one of a file in the folder. Raises ConfigInvalid."""
    try:
        return KeyHash(*load_peppers(environment, folder / "pepper"))
    except (OSError, ValueError) as error:
        raise config.ConfigInvalid(f"store.folder: the secret that keys are hashed with cannot be used: {error}") from error


def build_key_set(it: auth_config.Issuer, fetch: Fetch, clock: Callable[[], float] = time.monotonic) -> KeySet:
    """An issuer's keys, from where they are said to be."""
    if it.jwks_url is None:
        return KeySet(it.url, it.algorithm, partial(fetch_discovered_keys, fetch), clock)
    return KeySet(it.jwks_url, it.algorithm, fetch, clock)


def _read_issuer(it: auth_config.Issuer) -> Issuer:
    try:
        check_url(it.jwks_url or discovery_url(it.url))
        roles = {name: Role(role) for name, role in it.roles.items()}
        tenants = None if it.tenants is None else frozenset(it.tenants)
        claims = it.user_claim, it.tenant_claim, it.roles_claim
        return Issuer(it.url, it.audience, it.algorithm, it.leeway_s, *claims, tenants, roles)
    except ValueError as error:
        raise config.ConfigInvalid(f"auth.issuers: {error}") from error

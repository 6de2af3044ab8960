"""What identity tests share: a clock moved by hand, keys without a database, an issuer that signs, and the whole check put together."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from prometheus_client import CollectorRegistry

from router.auth.authenticate import Authenticator
from router.auth.directory import Directory
from router.auth.jwks import KeySet
from router.auth.keys import KeyHash, NewKey
from router.auth.mtls import ServiceCertificates
from router.auth.principal import Principal, Role
from router.auth.refusals import Refusals
from router.auth.tokens import Issuer, TokenVerifier
from router.store.database import StoreAway
from router.store.identity import Changes
from router.store.rows import KeyDigests, KeyRow
from router.telemetry import Metrics

START = 1_800_000_000.0
ISSUER = Issuer("https://id.example", "tidegate", "RS256", roles={"gateway-admin": Role.TENANT_ADMIN})
OLD, NEW, NEWER = (mark * 32 for mark in (b"p", b"n", b"m"))
KEYS = KeyHash(OLD)
SERVICES = {"spiffe://acme/billing": Principal("acme", "billing", frozenset({Role.CALLER}))}


@dataclass(slots=True)
class Clock:
    """A clock that stands still."""

    time: float = START

    def __call__(self) -> float:
        return self.time


@dataclass(slots=True)
class FakeKeys:
    """A key table in memory that counts look-ups and can be away."""

    rows: dict[str, KeyRow] = field(default_factory=dict)
    changed: list[str] = field(default_factory=list)
    disabled: list[str] = field(default_factory=list)
    away: bool = False
    lookups: int = 0
    renewed: list[str] = field(default_factory=list)

    def add(self, hashing: KeyHash = KEYS, **changes: Any) -> NewKey:
        """A new key of acme's ann."""
        key = hashing.make_key()
        self.change(replace(row_of(key), **changes))
        return key

    def change(self, row: KeyRow) -> None:
        self.rows[row.prefix] = row
        self.changed.append(row.prefix)

    async def find_key(self, prefix: str) -> KeyRow | None:
        self.lookups += 1
        await asyncio.sleep(0)
        if self.away:
            raise StoreAway
        return self.rows.get(prefix)

    async def renew_key(self, prefix: str, digests: KeyDigests) -> None:
        if self.away:
            raise StoreAway
        row = replace(self.rows[prefix], **asdict(digests))
        if row != self.rows[prefix]:
            self.renewed.append(prefix)
            self.change(row)

    async def read_changes(self, since: datetime) -> Changes:
        if self.away:
            raise StoreAway
        return Changes(datetime.now(UTC), [self.rows[prefix] for prefix in self.changed], self.disabled)


def row_of(key: NewKey) -> KeyRow:
    """What is stored of a key of acme's ann."""
    row = KeyRow(key.prefix, b"", "acme", "ann", "", ["caller"], None, datetime.fromtimestamp(START, UTC), None, None)
    return replace(row, **asdict(key.digests))


class Signer:
    """An issuer's private keys and its key server."""

    def __init__(self, *key_ids: str) -> None:
        self.keys = {key_id: rsa.generate_private_key(65537, 2048) for key_id in key_ids}
        self.fetches = 0
        self.document: bytes | None = None
        self.gate = asyncio.Event()
        self.gate.set()

    async def fetch(self, url: str) -> bytes:
        """The JWKS, or whatever `document` is."""
        self.fetches += 1
        await self.gate.wait()
        return self.key_set() if self.document is None else self.document

    def key_set(self) -> bytes:
        to_jwk = jwt.algorithms.RSAAlgorithm.to_jwk
        entries = [{**json.loads(to_jwk(key.public_key())), "kid": key_id} for key_id, key in self.keys.items()]
        return json.dumps({"keys": entries}).encode()

    def public_pem(self, key_id: str) -> bytes:
        return self.keys[key_id].public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)

    def sign(self, key_id: str = "k1", algorithm: str = "RS256", **claims: Any) -> str:
        """A token for acme's ann; a claim of None is left out."""
        return jwt.encode(claims_of(**claims), self.keys[key_id], algorithm, {"kid": key_id})


def claims_of(**claims: Any) -> dict[str, Any]:
    usual = {"iss": ISSUER.url, "aud": ISSUER.audience, "exp": START + 60, "tenant": "acme", "sub": "ann"}
    return {name: value for name, value in {**usual, **claims}.items() if value is not None}


def build_refusals(registry: CollectorRegistry | None = None) -> Refusals:
    """An account of refusals, with a registry of its own unless one is given."""
    return Refusals(Metrics(registry or CollectorRegistry()).auth_refusals)


@dataclass(frozen=True, slots=True)
class Gate:
    """An authenticator and what it stands on."""

    clock: Clock
    keys: FakeKeys
    directory: Directory
    authenticator: Authenticator
    registry: CollectorRegistry

    def counts(self) -> Counter[str]:
        """Refusals by their reasons."""
        samples = [it for family in self.registry.collect() for it in family.samples if it.name == "tidegate_auth_refusals_total"]
        return Counter({it.labels["reason"]: int(it.value) for it in samples})

    async def ask(self, *credentials: str | bytes) -> Principal:
        """Identifies a caller who sends these `authorization` headers."""
        return await self.authenticator.identify([("authorization", value) for value in credentials], {})


async def build_gate(
    signer: Signer | None = None,
    *,
    issuers: Sequence[Issuer] = (ISSUER,),
    hashing: KeyHash = KEYS,
    keys: FakeKeys | None = None,
    **options: Any,
) -> Gate:
    """A gate that has polled once."""
    clock, keys = Clock(), keys or FakeKeys()
    directory = Directory(keys, clock=clock, **options)
    await directory.poll()
    signer = signer or Signer()
    tokens = TokenVerifier([(issuer, KeySet(issuer.url, issuer.algorithm, signer.fetch, clock)) for issuer in issuers], clock)
    registry = CollectorRegistry()
    services, refusals = ServiceCertificates(SERVICES), build_refusals(registry)
    return Gate(clock, keys, directory, Authenticator(hashing, directory, tokens, services, refusals, now=clock), registry)

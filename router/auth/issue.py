"""Making and renewing keys, for the admin service. Given a store on a transaction, the change and its audit line are one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, timedelta

from router.auth.keys import KeyHash, NewKey
from router.auth.principal import Role
from router.store.identity import IdentityStore
from router.store.rows import KeyRow


@dataclass(frozen=True, slots=True)
class KeyGrant:
    """What a new key is for. `models` None is every model."""

    tenant: str
    user: str
    name: str
    roles: frozenset[Role] = frozenset({Role.CALLER})
    models: Sequence[str] | None = None
    expires_at: datetime | None = None


class KeyIssuer:
    """Makes keys. The text of a key leaves here once and is stored nowhere."""

    def __init__(self, store: IdentityStore, keys: KeyHash, now: Callable[[], float]) -> None:
        self._store = store
        self._keys = keys
        self._now = now

    async def issue(self, grant: KeyGrant) -> NewKey:
        """A key for a user. Raises CallerError when there is no such user, StoreAway."""
        new = self._keys.make_key()
        row = KeyRow(
            prefix=new.prefix,
            tenant=grant.tenant,
            user=grant.user,
            name=grant.name,
            roles=sorted(role.value for role in grant.roles),
            models=None if grant.models is None else list(grant.models),
            created_at=self._time(),
            expires_at=grant.expires_at,
            revoked_at=None,
            **asdict(new.digests),
        )
        await self._store.add_key(row)
        return new

    async def rotate(self, tenant: str, prefix: str, overlap: timedelta) -> NewKey | None:
        """A key with the rights of an old one, which goes on working for the overlap. None when the tenant has no such key in force."""
        old = await self._store.find_key(prefix)
        if old is None or old.tenant != tenant or old.revoked_at or (old.expires_at and old.expires_at <= self._time()):
            return None
        new = self._keys.make_key()
        await self._store.add_key(replace(old, prefix=new.prefix, created_at=self._time(), **asdict(new.digests)))
        await self._store.expire_key(tenant, prefix, self._time() + overlap)
        return new

    def _time(self) -> datetime:
        return datetime.fromtimestamp(self._now(), UTC)

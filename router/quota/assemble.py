"""The quota from its configuration: counted in memory, or in the Redis that all routers share."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from router.config import ConfigInvalid, QuotaConfig
from router.quota.estimate import OutputEstimator
from router.quota.failover import FailClosed, FailOpen
from router.quota.memory import MemoryStore
from router.quota.quota import StoredQuota
from router.quota.redis import RedisStore
from router.quota.store import Store


@dataclass(frozen=True, slots=True)
class Counting:
    """The quota and what it counts with; `redis` None is this process's memory."""

    quota: StoredQuota
    redis: RedisStore | None
    refuses_when_away: bool

    @property
    def refuses_all(self) -> bool:
        """Whether no turn can be granted now."""
        return self.redis is not None and self.refuses_when_away and self.redis.is_away

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Counting]:
        """Raises StoreRefused when Redis cannot be used."""
        if self.redis is None:
            yield self
        else:
            async with self.redis:
                yield self


def assemble_quota(config: QuotaConfig) -> Counting:
    """Makes the stores and connects to nothing. Raises ConfigInvalid."""
    url = config.redis.get_secret_value()
    if not url:
        return Counting(StoredQuota(MemoryStore(), OutputEstimator()), None, refuses_when_away=False)
    try:
        redis = RedisStore(url, deadline_s=config.redis_deadline_s)
    except ValueError:
        raise ConfigInvalid("quota.redis: must be a URL such as redis://127.0.0.1:6379/0") from None
    refuses = config.redis_away == "refuse"
    store: Store = FailClosed(redis) if refuses else FailOpen(redis, MemoryStore(), routers=config.routers)
    return Counting(StoredQuota(store, OutputEstimator()), redis, refuses)

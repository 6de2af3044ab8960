"""GET /v1/models and /v1/models/{id}: what may be named as `model`."""

from __future__ import annotations

import time

from router.auth.principal import Principal
from router.errors import model_unknown
from router.models import Asked, Models
from router.transport.http.exchange import Exchange
from router.transport.http.forms import Json


class Catalogue:
    """The endpoints that tell of models."""

    def __init__(self, models: Models) -> None:
        self._models = models
        self._created = int(time.time())

    async def list_models(self, exchange: Exchange) -> None:
        """All that the caller may use; the first is the default."""
        names = [self._describe(asked) for asked in self._models.offered if _may_use(exchange.principal, asked)]
        await exchange.answer_json({"object": "list", "data": names})

    async def get_model(self, exchange: Exchange) -> None:
        """One of them; names may hold slashes."""
        name = exchange.path["name"]
        if not (name and _may_use(exchange.principal, asked := self._models.find(name))):
            raise model_unknown()
        await exchange.answer_json(self._describe(asked))

    def _describe(self, asked: Asked) -> Json:
        return {"id": asked.name, "object": "model", "created": self._created, "owned_by": "tidegate"}


def _may_use(principal: Principal | None, asked: Asked) -> bool:
    assert principal is not None, "this endpoint asks who calls"
    return any(principal.may_use(model.name) for model in asked.models)

"""GET /v1/models and /v1/models/{id}: what may be named as `model`."""

from __future__ import annotations

import time

from router.auth.principal import Principal
from router.errors import model_unknown
from router.models import Models
from router.transport.http.exchange import Exchange
from router.transport.http.forms import Json


class Catalogue:
    """The endpoints that tell of models."""

    def __init__(self, models: Models) -> None:
        self._models = models
        self._created = int(time.time())

    async def list_models(self, exchange: Exchange) -> None:
        """All that the caller may use; the first is the default."""
        names = [model.name for model in self._models if _may_use(exchange.principal, model.name)]
        await exchange.answer_json({"object": "list", "data": [self._describe(name) for name in names]})

    async def get_model(self, exchange: Exchange) -> None:
        """One of them; names may hold slashes."""
        name = exchange.path["name"]
        if not (name and _may_use(exchange.principal, name)):
            raise model_unknown()
        await exchange.answer_json(self._describe(self._models.find(name).name))

    def _describe(self, name: str) -> Json:
        return {"id": name, "object": "model", "created": self._created, "owned_by": "tidegate"}


def _may_use(principal: Principal | None, model: str) -> bool:
    assert principal is not None, "this endpoint asks who calls"
    return principal.models is None or model in principal.models

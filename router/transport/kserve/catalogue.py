"""The names by which KServe callers know the router's models."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from router.errors import model_unknown
from router.models import Model, Models
from router.transport.kserve.contracts import TEXT, TOKENS, VERSION, Contract

DEFAULT = "tensorrt_llm"


@dataclass(frozen=True, slots=True)
class Served:
    """A name, the router's model behind it with the ids that end its answers, and what it takes."""

    name: str
    model: str
    end_ids: Sequence[int]
    contract: Contract


class Catalogue:
    """TensorRT-LLM's own names stand for the default model. Each model's own name takes token ids, `<name>/ensemble` takes text."""

    def __init__(self, models: Models) -> None:
        default = models.default
        served = [_serve(DEFAULT, default, TOKENS), _serve("ensemble", default, TEXT), _serve("tensorrt_llm_bls", default, TEXT)]
        for model in models:
            served += _serve(f"{model.name}/ensemble", model, TEXT), _serve(model.name, model, TOKENS)
        self._served = {it.name: it for it in served}

    def __iter__(self) -> Iterator[Served]:
        return iter(self._served.values())

    def find(self, name: str, version: str = "") -> Served:
        """The one of that name, `tensorrt_llm` for an empty one. Raises CallerError MODEL_UNKNOWN."""
        served = self._served.get(name or DEFAULT)
        if served is None or version not in ("", VERSION):
            raise model_unknown()
        return served


def _serve(name: str, model: Model, contract: Contract) -> Served:
    return Served(name, model.name, model.tokenizer.eos_ids, contract)

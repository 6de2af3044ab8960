"""Fixtures of the KServe door."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from router.model_config import ModelConfig
from router.models import Model, Models
from router.text.tokenizer import Tokenizer
from router.transport.kserve.catalogue import Catalogue


@pytest.fixture(scope="module")
def catalogue(chatml: Path) -> Catalogue:
    """Of three models, one with a name that NVIDIA uses."""
    tokenizer, executor = Tokenizer.load(chatml), ThreadPoolExecutor(1)
    configs = [ModelConfig(name=name, path=chatml, workers=("127.0.0.1:1",)) for name in ("first", "second", "ensemble")]
    return Catalogue(Models([Model(config, tokenizer, executor) for config in configs]))

"""Models that the tests of `router.text` share: made once, never changed."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import settings

from router.text.tokenizer import Tokenizer
from tests.models import build_chatml_model, build_sentencepiece_model, build_unigram_model
from tests.unit.router.text.model_pair import ModelPair

# A busy machine is no fault of the code.
settings.register_profile("text", deadline=None)
settings.load_profile("text")


@pytest.fixture(scope="session")
def chatml_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_chatml_model(tmp_path_factory.mktemp("chatml"))


@pytest.fixture(scope="session")
def chatml(chatml_folder: Path) -> Tokenizer:
    return Tokenizer.load(chatml_folder)


@pytest.fixture(scope="session", params=[build_chatml_model, build_sentencepiece_model, build_unigram_model])
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> ModelPair:
    return ModelPair(request.param(tmp_path_factory.mktemp("model")))

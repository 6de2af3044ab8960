"""Fixtures of all tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.models import build_chatml_model


@pytest.fixture(scope="session")
def chatml(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small ChatML model folder with one token per byte."""
    return build_chatml_model(tmp_path_factory.mktemp("chatml"))

"""What a test needs and this machine lacks."""

from __future__ import annotations

import os
from typing import NoReturn

import pytest


def missing(what: str, why: str) -> NoReturn:
    """Fails where `CI` is set, since nobody reads what was skipped there; elsewhere skips, and pytest's last lines say it."""
    end = pytest.fail if os.environ.get("CI") else pytest.skip
    end(f"NOT TESTED: {what}: {why}")

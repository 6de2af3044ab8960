"""Who may import whom (DESIGN.md, section 3), checked on every file. The rules are the tables below; the rest reads imports."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

# Where our code is, and by which name it is imported.
PACKAGES = {
    "clients/loadtest/loadtest": "loadtest",
    "clients/python/tidegate": "tidegate",
    "model_repository": "model_repository",
    "router": "router",
    "server": "server",
}

# What a package may import of ours. The router uses the generated stubs only, and its command the parser of all of them; the commands of
# `server` are callers of the router.
OURS = {
    "loadtest": ("loadtest", "tidegate", "router", "server"),
    "tidegate": ("tidegate",),
    "model_repository": ("server",),
    "router": ("router", "tidegate.v1", "tidegate.parser"),
    "server": ("server", "tidegate"),
}

# The router from top to bottom: a module imports from its own layer and from those below, and only `__main__` imports `app`.
LAYERS = (
    ("router.__main__",),
    ("router.app", "router.doctor", "router.first_key", "router.parts"),
    ("router.transport",),
    (
        "router.admin",
        "router.answer",
        "router.choice",
        "router.journey",
        "router.models",
        "router.pipeline",
        "router.pool",
        "router.spending",
    ),
    (
        "router.admission",
        "router.auth",
        "router.ledger",
        "router.checks",
        "router.degradation",
        "router.quota",
        "router.redis",
        "router.replay",
        "router.routing",
        "router.store",
        "router.telemetry",
        "router.text",
        "router.token_turn",
        "router.tool_checks",
        "router.turn",
        "router.upstream",
    ),
    (
        "router.auth_config",
        "router.config",
        "router.errors",
        "router.logs",
        "router.model",
        "router.model_config",
        "router.tokens",
        "router.tools",
    ),
)

# What the router's domain may not know of.
PURE = ("router.errors", "router.model", "router.tokens", "router.tools")
FOREIGN = ("grpc", "google", "tidegate", "tritonclient", "opentelemetry", "prometheus_client", "sqlite3", "psycopg", "asyncpg", "redis")


@dataclass(frozen=True, slots=True)
class Import:
    """`module` imports `target`, which may name something in a module."""

    module: str
    target: str
    line: int


def read_imports(module: str, source: str, *, is_package: bool = False) -> Iterator[Import]:
    """All imports of a source, those inside functions and conditions too."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (Import(module, name.name, node.lineno) for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = _base_of(node, module, is_package)
            yield from (Import(module, f"{base}.{name.name}", node.lineno) for name in node.names)


def _base_of(node: ast.ImportFrom, module: str, is_package: bool) -> str:
    if not node.level:
        return node.module or ""
    parts = module.split(".") if is_package else module.split(".")[:-1]
    return ".".join([*parts[: len(parts) - node.level + 1], *filter(None, [node.module])])


def find_fault(it: Import) -> str | None:
    """The rule that an import breaks."""
    if it.module in PURE and is_in(it.target, FOREIGN):
        return "the domain knows no library"
    if not is_in(it.target, OURS):
        return None
    package = it.module.partition(".")[0]
    if not is_in(it.target, OURS[package]):
        return f"of ours, {package} may import {' and '.join(OURS[package])}"
    return _find_layer_fault(it) if package == "router" and is_in(it.target, ("router",)) else None


def _find_layer_fault(it: Import) -> str | None:
    here, there = layer_of(it.module), layer_of(it.target)
    if here is None or there is None:
        return f"{it.target if there is None else it.module} has no layer; give it one in {Path(__file__).name}"
    return "a lower layer knows nothing of a higher one" if there < here else None


def layer_of(module: str) -> int | None:
    """The layer's place from the top; None for a module that is in none."""
    return next((at for at, layer in enumerate(LAYERS) if is_in(module, layer)), None)


def is_in(name: str, modules: Iterable[str]) -> bool:
    """Whether a dotted name is one of these modules or something inside one."""
    return any(name == module or name.startswith(f"{module}.") for module in modules)


def imports_of_package(folder: str) -> Iterator[tuple[Path, Import]]:
    """All imports of a package's files."""
    for path in sorted((ROOT / folder).rglob("*.py")):
        parts = (PACKAGES[folder], *path.relative_to(ROOT / folder).with_suffix("").parts)
        is_package = parts[-1] == "__init__"
        module = ".".join(parts[:-1] if is_package else parts)
        yield from ((path, it) for it in read_imports(module, path.read_text(), is_package=is_package))


@pytest.mark.parametrize("folder", PACKAGES)
def test_every_import_keeps_the_rules(folder: str) -> None:
    """Each fault is told with its file and line."""
    imports = list(imports_of_package(folder))
    faults = [f"{path.relative_to(ROOT)}:{it.line}: imports {it.target}: {fault}" for path, it in imports if (fault := find_fault(it))]
    assert imports
    assert not faults, "\n" + "\n".join(faults)


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("tidegate.client", "import router"),
        ("tidegate.client", "from server.options import EngineOptions"),
        ("model_repository.tensorrt_llm.1.model", "from router.model import Role"),
        ("server.stepper", "import router.model"),
        ("router.turn", "import server"),
        ("router.turn", "def feed():\n    from server.lanes import Frame"),
        ("router.transport.session", "from tidegate import Client"),
        ("router.transport.session", "import router.app"),
        ("router.transport.session", "from router import app"),
        ("router.transport.session", "from ..app import build"),
        ("router.pipeline", "from router.transport.outbox import Outbox"),
        ("router.routing.fleet", "from router.pipeline import Pipeline"),
        ("router.turn", "from router import answer, model"),
        ("router.model", "from router import checks"),
        ("router.errors", "import grpc"),
        ("router.model", "from google.protobuf import message"),
        ("router.model", "from tidegate.v1 import turn_pb2"),
        ("router.new", "from router.model import Role"),
        ("router.pipeline", "from router import *"),
    ],
)
def test_a_forbidden_import_is_found(module: str, source: str) -> None:
    """In each of its forms."""
    assert [fault for it in read_imports(module, source) if (fault := find_fault(it))]


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("tidegate.client", "from tidegate.v1 import turn_pb2\nimport grpc"),
        ("model_repository.tensorrt_llm.1.model", "from server.triton_model import TidegateModel"),
        ("server.up", "from tidegate import Client"),
        ("router.__main__", "from router.app import build"),
        ("router.app", "from router.transport.grpc_api import ChatService\nfrom tidegate.v1 import chat_service_pb2_grpc"),
        ("router.transport.session", "from . import outbox\nfrom ..checks import check_turn"),
        ("router.pipeline", "from router.answer import Answer\nfrom router.upstream.lane import Lane"),
        ("router.model", "from router.errors import TidegateError\nimport dataclasses"),
        ("router.modeling", "import grpc"),
    ],
)
def test_an_allowed_import_is_not_found(module: str, source: str) -> None:
    """What the rules leave free is free."""
    assert not [fault for it in read_imports(module, source) if (fault := find_fault(it))]


def test_an_import_has_its_line() -> None:
    """So that a fault can be gone to."""
    imports = read_imports("router.turn", "import os\n\nif True:\n    from server import lanes\n")
    assert [(it.target, it.line) for it in imports] == [("os", 1), ("server.lanes", 4)]


def test_a_packages_own_relative_imports_are_resolved() -> None:
    """In an `__init__.py` a dot is the package itself."""
    (it,) = read_imports("router.transport", "from .outbox import Outbox", is_package=True)
    assert it.target == "router.transport.outbox.Outbox"

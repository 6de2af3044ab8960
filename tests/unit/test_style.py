"""Sizes of the code we ship, held to what our models of style keep: short functions, files that can be read in one go."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median, quantiles

ROOT = Path(__file__).parents[2]
FOLDERS = ("router", "server", "clients/python/tidegate", "clients/loadtest/loadtest")
GENERATED = ROOT / "clients/python/tidegate/v1"

MEDIAN_LINES = 10
NINE_IN_TEN_LINES = 30
FUNCTION_LINES = 60
FILE_LINES = 300


@dataclass(frozen=True, slots=True)
class Function:
    """A function's place, name and length in lines, docstring included and decorators not."""

    path: Path
    line: int
    name: str
    lines: int

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.name} has {self.lines} lines"


def read_functions(path: Path, source: str) -> Iterator[Function]:
    """All functions of a source, methods and inner ones too."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert node.end_lineno is not None
            yield Function(path, node.lineno, node.name, node.end_lineno - node.lineno + 1)


def sources() -> dict[Path, str]:
    """Our files by their path from the root, generated ones left out."""
    paths = [path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.py")) if GENERATED not in path.parents]
    return {path.relative_to(ROOT): path.read_text() for path in paths}


def all_functions() -> list[Function]:
    return [function for path, source in sources().items() for function in read_functions(path, source)]


def find_long_functions(functions: list[Function]) -> list[str]:
    return [str(function) for function in functions if function.lines > FUNCTION_LINES]


def find_long_files(files: dict[Path, str]) -> list[str]:
    lengths = {path: source.count("\n") for path, source in files.items()}
    return [f"{path} has {lines} lines" for path, lines in lengths.items() if lines > FILE_LINES]


def test_functions_are_short() -> None:
    """Half of them have at most ten lines and nine in ten at most thirty; if not, the longest are told."""
    functions = sorted(all_functions(), key=lambda function: -function.lines)
    lengths = [function.lines for function in functions]
    longest = "\n".join(map(str, functions[:20]))
    assert median(lengths) <= MEDIAN_LINES, longest
    assert quantiles(lengths, n=10)[-1] <= NINE_IN_TEN_LINES, longest


def test_no_function_is_long() -> None:
    """One that does not fit on a screen does more than one thing."""
    assert not find_long_functions(all_functions())


def test_no_file_is_long() -> None:
    """One that does not fit into a head is about more than one thing."""
    assert not find_long_files(sources())


def test_a_long_function_is_told_with_its_place() -> None:
    """Counted from `def` to the last line, whether it is a method, asynchronous or inside another."""
    body = "        pass\n" * FUNCTION_LINES
    source = f"class A:\n    @property\n    async def long(self):\n{body}\ndef short(): ...\n"
    functions = list(read_functions(Path("a.py"), source))
    assert [function.name for function in functions] == ["short", "long"]
    assert find_long_functions(functions) == [f"a.py:3: long has {FUNCTION_LINES + 1} lines"]


def test_a_long_file_is_told() -> None:
    """The limit itself is allowed."""
    files = {Path("long.py"): "\n" * (FILE_LINES + 1), Path("short.py"): "\n" * FILE_LINES}
    assert find_long_files(files) == [f"long.py has {FILE_LINES + 1} lines"]

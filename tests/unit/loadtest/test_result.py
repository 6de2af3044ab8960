"""Result files, tables and reports."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from loadtest.histogram import Histogram
from loadtest.measures import measure
from loadtest.record import Usage
from loadtest.report import write_report
from loadtest.report.charts import draw_load
from loadtest.result import Load, Machine, Measures, Result, ResultUnreadable, Slo
from loadtest.runner import Run
from loadtest.tables import compare, compare_table, print_result
from loadtest.usage import ProcessSamples, Sample
from rich.console import Console

from tests.unit.loadtest.fakes import make_record

PNG = b"\x89PNG"


def make_run(load: Load, delay: float) -> Measures:
    """Two hundred requests in ten seconds, of two tenants; one fails."""
    records = [
        make_record(
            at / 20,
            [at / 20 + delay * (1 + at % 7), at / 20 + delay * 9, at / 20 + delay * 10],
            number=at,
            tenant=f"tenant-{1 + at % 2}",
            usage=Usage(100, 3, 40),
            reason="ENGINE_FAILED" if at == 77 else "",
        )
        for at in range(200)
    ]
    samples = [ProcessSamples(name, 1, [Sample(0, 0, 50), Sample(10, 2, 60)]) for name in ("harness", "router")]
    return measure(Run(records, 0.0, 10.0, None, 0, Histogram([0.001] * 1000)), load, Slo(), samples[0], samples[1:])


def make_result(name: str = "router", delay: float = 0.01) -> Result:
    runs = [make_run(Load("open", rate), delay * rate / 20) for rate in (20.0, 40.0)]
    return Result(name, "tidegate://127.0.0.1:8500", {"rate": "20 40"}, Slo(), Machine("1", "3.11", "Linux", 2, "2026-01-01"), runs)


def test_nothing_is_drawn_above_what_was_offered() -> None:
    """More arrived by chance than the mean rate that was asked for: completions are drawn over what arrived."""
    run = make_run(Load("open", 18.0), 0.01)
    figure = draw_load([replace(make_result(), runs=[run])])
    lines: dict[str, Any] = {str(line.get_label()): line for line in figure.axes[2].get_lines()}
    drawn = lines["router completed"]
    assert list(drawn.get_xdata()) == [run.offered_per_s]
    assert list(drawn.get_ydata()) <= [run.offered_per_s]


def test_a_result_is_read_as_it_was_written(tmp_path: Path) -> None:
    """Everything, and the file names its version."""
    result = make_result()
    result.save(tmp_path / "a.json")
    assert Result.load(tmp_path / "a.json") == result
    assert json.loads((tmp_path / "a.json").read_text())["schema"] == "tidegate.loadtest/1"


@pytest.mark.parametrize("content", ["", "{}", '{"schema": "tidegate.loadtest/2"}'])
def test_what_is_no_result_is_refused(tmp_path: Path, content: str) -> None:
    """Other versions too; the message names the file."""
    path = tmp_path / "a.json"
    path.write_text(content)
    with pytest.raises(ResultUnreadable, match=r"a\.json"):
        Result.load(path)
    with pytest.raises(ResultUnreadable, match=r"b\.json"):
        Result.load(tmp_path / "b.json")


def test_results_are_compared_as_ratios() -> None:
    """Each load on its own; what one of them lacks is a dash."""
    direct, router = make_result("direct"), make_result("router", delay=0.02)
    router = replace(router, runs=router.runs[:1])
    rows = {(load, name): values for load, name, values in compare([direct, router])}
    assert rows["20/s", "end to end p50 ms"] == ["100", "200  (2.00)"]
    assert rows["40/s", "end to end p50 ms"] == ["200", "–"]
    assert rows["20/s", "flags"] == ["FAILED", "FAILED"]


def test_tables_can_be_printed() -> None:
    """With flags, tenants and processes."""
    console = Console(file=io.StringIO(), width=120)
    print_result(console, make_result())
    console.print(compare_table([make_result(), make_result("other")]))
    assert isinstance(console.file, io.StringIO)
    printed = console.file.getvalue()
    assert all(text in printed for text in ("time to first token", "tenant-2", "FAILED", "router: 2.00 s CPU", "ENGINE_FAILED 1"))


def test_a_report_needs_nothing_else(tmp_path: Path) -> None:
    """Pictures are inside; nothing is loaded from anywhere, and names are escaped."""
    results = [replace(result, runs=result.runs[1:]) for result in (make_result("<direct>"), make_result("router"))]
    paths = write_report(results, tmp_path / "page.html", tmp_path / "png")
    page = paths[0].read_text()
    assert page.count("<svg") == 1 + 2 * 3
    assert "&lt;direct&gt;" in page
    assert "<direct>" not in page
    assert "FAILED" in page
    for outside in ("<script", "<link", "src=", "@import"):
        assert outside not in page
    assert len(paths) == 1 + 7
    assert all(path.read_bytes().startswith(PNG) for path in paths[1:])


def test_a_run_without_answers_has_a_report(tmp_path: Path) -> None:
    """Nothing to draw is no reason to fall over."""
    run = measure(Run([], 0.0, 1.0, None, 0, Histogram()), Load("open", 1), Slo(), ProcessSamples("harness", 1))
    result = replace(make_result(), runs=[run])
    (page,) = write_report([result], tmp_path / "page.html")
    assert "NOTHING_COMPLETED" in page.read_text()

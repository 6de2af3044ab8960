"""Results as tables for the terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from rich.console import Console
from rich.table import Table

from loadtest.result import Distribution, Measures, Result, ratio


def print_result(console: Console, result: Result) -> None:
    """Everything of a result that a person looks at first, flags last."""
    console.print(f"\n[bold]{result.name}[/bold]  {result.target}  {describe(result.workload)}")
    for run in result.runs:
        console.print(latency_table(run))
        console.print(rate_line(run))
        if len(run.tenants) > 1:
            console.print(tenant_table(run))
        for cost in (*run.processes, run.harness):
            per_token = "" if cost.cpu_us_per_token is None else f", {cost.cpu_us_per_token:.1f} µs per token"
            console.print(f"{cost.name}: {cost.cpu_s:.2f} s CPU{per_token}, {cost.rss:.0f} MiB resident, at most {cost.rss_peak:.0f}")
        for flag in run.flags:
            console.print(f"[bold yellow]{flag.code}[/bold yellow] {flag.message}")


def latency_table(run: Measures) -> Table:
    """Percentiles in milliseconds."""
    table = Table("ms", "count", "mean", "p50", "p90", "p99", "p99.9", "max", title=f"{run.load}")
    for name, values in distributions(run):
        if values.count:
            shown = (values.mean, values.p50, values.p90, values.p99, values.p99_9, values.high)
            table.add_row(name, str(values.count), *map(milliseconds, shown))
    return table


def distributions(run: Measures) -> list[tuple[str, Distribution]]:
    """All of a run, by the names that readers see."""
    return [
        ("time to first token", run.ttft),
        ("inter-token", run.itl),
        ("per output token", run.tpot),
        ("end to end", run.e2e),
        ("queue wait", run.queue_wait),
        ("harness: late sends", run.send_delay),
        ("harness: loop lag", run.loop_lag),
    ]


def rate_line(run: Measures) -> str:
    """Outcomes and rates in one sentence."""
    outcomes = ", ".join(f"{count} {name}" for name, count in run.outcomes.items()) or "no request"
    reasons = "".join(f" {name} {count}" for name, count in run.reasons.items())
    cached = "" if run.cached_share is None else f"; {run.cached_share:.0%} of prompt tokens cached"
    return (
        f"{outcomes}{reasons and f' ({reasons.strip()})'}; offered {run.offered_per_s:.3g}/s, completed {run.completed_per_s:.3g}/s, "
        f"good {run.good_per_s:.3g}/s ({run.good_share:.1%}); tokens/s {run.tokens_in_per_s:.0f} in, {run.tokens_out_per_s:.0f} out{cached}"
    )


def tenant_table(run: Measures) -> Table:
    """Service by tenant, with how fair it was."""
    fair = ", ".join(
        f"{name}: Jain {each.jain:.3f}, max/min {number(each.max_over_min)}"
        for name, each in (("tokens", run.fairness_tokens), ("completed share", run.fairness_completed))
        if each is not None
    )
    table = Table("tenant", "requests", "completed", "good", "tokens", "ttft p50 ms", "ttft p99 ms", title=fair)
    for tenant in run.tenants:
        counts = (tenant.requests, tenant.completed, tenant.good, tenant.tokens)
        table.add_row(tenant.name, *map(str, counts), milliseconds(tenant.ttft_p50), milliseconds(tenant.ttft_p99))
    return table


def compare_table(results: Sequence[Result]) -> Table:
    """Results side by side at each load, with ratios to the first."""
    table = Table("load", "figure", *(result.name for result in results), title=f"ratios to {results[0].name} in brackets")
    shown = ""
    for load, name, values in compare(results):
        table.add_row("" if load == shown else load, name, *values)
        shown = load
    return table


def compare(results: Sequence[Result]) -> Iterator[tuple[str, str, list[str]]]:
    """Rows of a load, a figure and each result's value, with its ratio to the first result's."""
    for load in dict.fromkeys(str(run.load) for result in results for run in result.runs):
        runs = [next((run for run in result.runs if str(run.load) == load), None) for result in results]
        for name, figure_of in FIGURES:
            figures = [None if run is None else figure_of(run) for run in runs]
            if any(figure is not None for figure in figures):
                yield load, name, _with_ratios(figures)
        yield load, "flags", [" ".join(flag.code for flag in run.flags) if run else "" for run in runs]


FIGURES: tuple[tuple[str, Callable[[Measures], float | None]], ...] = (
    ("ttft p50 ms", lambda run: _ms(run.ttft.p50)),
    ("ttft p99 ms", lambda run: _ms(run.ttft.p99)),
    ("inter-token p50 ms", lambda run: _ms(run.itl.p50)),
    ("inter-token p99 ms", lambda run: _ms(run.itl.p99)),
    ("per output token p50 ms", lambda run: _ms(run.tpot.p50)),
    ("end to end p50 ms", lambda run: _ms(run.e2e.p50)),
    ("end to end p99 ms", lambda run: _ms(run.e2e.p99)),
    ("completed/s", lambda run: run.completed_per_s),
    ("good/s", lambda run: run.good_per_s),
    ("tokens out/s", lambda run: run.tokens_out_per_s),
    ("cached share", lambda run: run.cached_share),
    ("not completed", lambda run: run.requests - run.outcomes.get("completed", 0)),
    ("CPU µs per token", lambda run: sum(cost.cpu_us_per_token or 0 for cost in run.processes) if run.processes else None),
    ("RSS MiB", lambda run: sum(cost.rss for cost in run.processes) if run.processes else None),
)


def milliseconds(seconds: float | None) -> str:
    """Three digits that mean something; a dash for what could not be told."""
    return number(_ms(seconds))


def number(value: float | None) -> str:
    """Three significant digits; a dash for None."""
    return "–" if value is None else f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"


def describe(values: dict[str, str]) -> str:
    """`key=value` pairs."""
    return " ".join(f"{key}={value}" for key, value in values.items())


def _with_ratios(figures: Sequence[float | None]) -> list[str]:
    base = figures[0]
    ratios = [ratio(figure, base) for figure in figures]
    return [
        number(figure) if at == 0 or share is None else f"{number(figure)}  ({share:.2f})"
        for at, (figure, share) in enumerate(zip(figures, ratios, strict=True))
    ]


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else seconds * 1e3

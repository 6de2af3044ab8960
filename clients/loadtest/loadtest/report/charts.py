"""The figures of a report. Times are in milliseconds, axes begin at zero unless they are logarithmic and say so."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter

from loadtest.report.style import BLUE, GREEN, GREY, ORANGE, YELLOW, looks
from loadtest.result import Distribution, Measures, Result, Slice
from loadtest.tables import milliseconds

BINS_PER_DECADE = 20

_ABOVE: Any = {"loc": "lower right", "bbox_to_anchor": (1.0, 0.97)}
"""Where a legend hides nothing."""


def draw_load(results: Sequence[Result]) -> Figure:
    """Latency and throughput of each result against its loads."""
    figure = Figure(figsize=(11, 4.2))
    ttft, itl, rate = figure.subplots(1, 3)
    for result, (colour, marker) in zip(results, looks(len(results)), strict=True):
        runs = sorted(result.runs, key=lambda run: run.load.value)
        # What was really offered: arrivals come at random, and more than on average would be drawn as if more were completed than offered.
        loads = [run.offered_per_s if run.load.kind == "open" else run.load.value for run in runs]
        for axes, of in ((ttft, "ttft"), (itl, "itl")):
            median, tail = ([_ms(getattr(getattr(run, of), name)) for run in runs] for name in ("p50", "p99"))
            axes.plot(loads, median, color=colour, marker=marker, label=f"{result.name} p50")
            axes.plot(loads, tail, color=colour, marker=marker, linestyle="--", fillstyle="none", label=f"{result.name} p99")
        done, good = [run.completed_per_s for run in runs], [run.good_per_s for run in runs]
        rate.plot(loads, done, color=colour, marker=marker, label=f"{result.name} completed")
        rate.plot(loads, good, color=colour, marker=marker, linestyle=":", fillstyle="none", label=f"{result.name} good")
    kind = results[0].runs[0].load.kind
    x = "offered load, requests/s" if kind == "open" else "load, callers that wait for their answers"
    titles = ("Time to first token", "Time between tokens", "Requests")
    for axes, title, y in zip((ttft, itl, rate), titles, ("ms", "ms", "requests/s"), strict=True):
        axes.set(title=title, xlabel=x, ylabel=y)
        begin_at_zero(axes, axes.yaxis, axes.xaxis)
        axes.legend(loc="lower right")
    if kind == "open":
        _draw_diagonal(rate)
    return figure


def _draw_diagonal(axes: Any) -> None:
    """What would be, were all that is offered completed."""
    end = axes.get_xlim()[1]
    axes.plot((0, end), (0, end), color=GREY, linewidth=0.8, zorder=0, scalex=False, scaley=False)
    axes.annotate("all that is offered ", (end * 0.6, end * 0.6), color=GREY, fontsize=8, ha="right", va="bottom")


def draw_timeline(result: Result, run: Measures) -> Figure:
    """What happened when, on one time axis."""
    figure = Figure(figsize=(11, 8))
    requests, running, ttft, tokens = figure.subplots(4, 1, sharex=True)
    slices = run.timeline
    width = slices[1].at - slices[0].at if len(slices) > 1 else 1.0
    times = [each.at + width / 2 for each in slices]
    requests.step(times, [each.due / width for each in slices], where="mid", color=GREY, label="due")
    requests.step(times, [each.completed / width for each in slices], where="mid", color=GREEN, label="completed")
    requests.bar(times, [each.failed / width for each in slices], width, color=ORANGE, label="failed, shed or given up")
    running.step(times, [each.running for each in slices], where="mid", color=BLUE)
    _draw_times(ttft, slices, times, result.slo.ttft_s)
    tokens.step(times, [each.tokens / width for each in slices], where="mid", color=BLUE)
    requests.set(title=f"{result.name}, {run.load}: requests", ylabel="requests/s")
    running.set(title="Requests under way", ylabel="requests")
    ttft.set(title="Time to first token, by when the request was due", ylabel="ms")
    tokens.set(title="Answer tokens", ylabel="tokens/s", xlabel="seconds")
    for axes in (requests, running, ttft, tokens):
        begin_at_zero(axes, axes.yaxis)
        axes.axvline(run.seconds, color=GREY, linewidth=0.8, linestyle=":")
    requests.legend(ncols=3, **_ABOVE)
    return figure


def _draw_times(axes: Any, slices: Sequence[Slice], times: Sequence[float], slo_s: float) -> None:
    axes.plot(times, [_ms(each.ttft_p50) for each in slices], color=BLUE, marker="o", markersize=3, label="median")
    axes.plot(times, [_ms(each.ttft_max) for each in slices], color=YELLOW, marker="^", markersize=3, linestyle="none", label="largest")
    highest = max((each.ttft_max or 0.0 for each in slices), default=0.0)
    if highest > slo_s / 4:
        axes.axhline(slo_s * 1e3, color=ORANGE, linestyle="--", linewidth=1, label="SLO")
    axes.legend(ncols=3, **_ABOVE)


def draw_histograms(result: Result, run: Measures) -> Figure:
    """How latencies are spread, on logarithmic time axes."""
    figure = Figure(figsize=(11, 3.4))
    shown = (("Time to first token", run.ttft), ("Time between tokens", run.itl), ("End to end", run.e2e))
    for axes, (title, values) in zip(figure.subplots(1, 3), shown, strict=True):
        _draw_histogram(axes, values)
        axes.set(title=title, xlabel=f"ms, logarithmic{_percentiles(values)}", ylabel="share of all, %")
    figure.suptitle(f"{result.name}, {run.load}; lines: p50 dashed, p99 dotted", x=0.01, ha="left", fontsize=10, color=GREY)
    return figure


def _draw_histogram(axes: Any, values: Distribution) -> None:
    bins: dict[int, int] = {}
    for value, count in values.bars:
        at = math.floor(math.log10(max(value * 1e3, 1e-3)) * BINS_PER_DECADE)
        bins[at] = bins.get(at, 0) + count
    if not bins:
        axes.text(0.5, 0.5, "no values", transform=axes.transAxes, ha="center", color=GREY)
        return
    edges = [10 ** (at / BINS_PER_DECADE) for at in bins]
    widths = [edge * (10 ** (1 / BINS_PER_DECADE) - 1) for edge in edges]
    axes.bar(edges, [count / values.count * 100 for count in bins.values()], widths, align="edge", color=BLUE)
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_xlim(min(edges) / 1.5, max(edges) * 1.7)
    for share, dashes in ((values.p50, "--"), (values.p99, ":")):
        if share is not None:
            axes.axvline(share * 1e3, color=ORANGE, linewidth=1.5, linestyle=dashes)


def _percentiles(values: Distribution) -> str:
    told = ", ".join(f"{name} {milliseconds(share)}" for name, share in (("p50", values.p50), ("p99", values.p99)) if share is not None)
    return told and f" ({told})"


def draw_tenants(result: Result, run: Measures) -> Figure:
    """What each tenant asked and got."""
    figure = Figure(figsize=(11, 3.8))
    counts, tokens, times = figure.subplots(1, 3)
    names, at = [tenant.name for tenant in run.tenants], range(len(run.tenants))
    counts.bar(at, [tenant.requests for tenant in run.tenants], color="#cccccc", label="asked")
    counts.bar(at, [tenant.completed for tenant in run.tenants], 0.55, color=GREEN, label="completed")
    counts.bar(at, [tenant.good for tenant in run.tenants], 0.3, color=BLUE, label="good")
    tokens.bar(at, [tenant.tokens / run.seconds for tenant in run.tenants], color=BLUE)
    times.plot(at, [_ms(tenant.ttft_p50) for tenant in run.tenants], "o", color=BLUE, label="p50")
    times.plot(at, [_ms(tenant.ttft_p99) for tenant in run.tenants], "^", color=ORANGE, label="p99")
    counts.set(title=f"{result.name}, {run.load}: requests", ylabel="requests")
    tokens.set(title=f"Tokens, in and out{_fairness(run)}", ylabel="tokens/s")
    times.set(title="Time to first token", ylabel="ms")
    for axes in (counts, tokens, times):
        axes.set_xticks(at, names, rotation=45, ha="right")
        axes.grid(visible=False, axis="x")
        begin_at_zero(axes, axes.yaxis)
    counts.legend()
    times.legend()
    return figure


def _fairness(run: Measures) -> str:
    return "" if run.fairness_tokens is None else f" (Jain {run.fairness_tokens.jain:.2f})"


def begin_at_zero(axes: Any, *sides: Any) -> None:
    """Lets an axis begin at zero, with room above the largest value."""
    for side in sides:
        low, high = side.get_view_interval()
        side.set_view_interval(0, max(high, low) * 1.05 or 1.0, ignore=True)
    axes.stale = True


def _ms(seconds: float | None) -> float:
    """NaN, which is not drawn, for None."""
    return math.nan if seconds is None else seconds * 1e3

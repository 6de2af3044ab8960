"""From records to figures. Pure: the same records give the same figures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby, pairwise

from loadtest.flags import find_flags
from loadtest.histogram import Histogram
from loadtest.record import Outcome, Record
from loadtest.result import Distribution, Fairness, Load, Measures, ProcessCost, Slo, Tenant
from loadtest.runner import Run
from loadtest.timeline import draw_timeline
from loadtest.usage import ProcessSamples


def measure(run: Run, load: Load, slo: Slo, harness: ProcessSamples, processes: Sequence[ProcessSamples] = ()) -> Measures:
    """All figures of a run."""
    seconds = max(run.end - run.begin, 1e-9)
    records = [record for record in run.records if run.begin <= record.due < run.end]
    completed = [record for record in records if record.outcome is Outcome.COMPLETED]
    in_window = [record for record in run.records if is_complete(record) and run.begin <= end_of(record) < run.end]
    tokens_out = sum(tokens_between(record, run.begin, run.end) for record in run.records if record.outcome is Outcome.COMPLETED)
    tenants = measure_tenants(records, slo)
    measures = Measures(
        load=load,
        seconds=seconds,
        requests=len(records),
        outcomes=dict(Counter(record.outcome.value for record in records)),
        reasons=dict(Counter(record.reason for record in records if record.reason).most_common()),
        skipped=run.skipped,
        offered_per_s=len(records) / seconds,
        completed_per_s=len(in_window) / seconds,
        good_per_s=sum(is_good(record, slo) for record in in_window) / seconds,
        good_share=sum(is_good(record, slo) for record in completed) / len(records) if records else 0.0,
        tokens_in_per_s=sum(prompt_tokens_between(record, run.begin, run.end) for record in run.records) / seconds,
        tokens_out_per_s=tokens_out / seconds,
        tokens_wasted=sum(record.tokens for record in records if not is_complete(record)),
        paused=sum(longest_gap(record) > slo.pause_s for record in completed),
        dripping=sum((tpot_of(record) or 0.0) > slo.pause_s for record in completed),
        cached_share=cached_share(completed),
        ttft=distribution(record.arrivals[0] - record.due for record in completed if record.arrivals),
        itl=distribution(gap for record in completed for gap in gaps_of(record)),
        tpot=distribution(tpot for record in completed if (tpot := tpot_of(record)) is not None),
        e2e=distribution(end_of(record) - record.due for record in completed),
        queue_wait=distribution(wait for record in completed if (wait := queue_wait_of(record)) is not None),
        send_delay=distribution(record.sent - record.due for record in records if record.sent is not None),
        loop_lag=Distribution.of(run.lag),
        tenants=tenants,
        fairness_tokens=Fairness.of([float(tenant.tokens) for tenant in tenants]),
        fairness_completed=Fairness.of([tenant.completed / tenant.requests for tenant in tenants]),
        processes=[cost_of(samples, run, tokens_out) for samples in processes],
        harness=cost_of(harness, run, tokens_out),
        timeline=draw_timeline(run),
        flags=[],
    )
    measures.flags.extend(find_flags(measures, records, slo))
    return measures


def distribution(values: Iterable[float]) -> Distribution:
    """Of durations in seconds."""
    return Distribution.of(Histogram(values))


def is_complete(record: Record) -> bool:
    """Whether the whole answer came."""
    return record.outcome is Outcome.COMPLETED


def end_of(record: Record) -> float:
    """When the last content came; an empty answer's terminal event otherwise."""
    return record.arrivals[-1] if record.arrivals else record.ended or record.due


def gaps_of(record: Record) -> Iterator[float]:
    """Times between arrivals of content. Tokens that came at the same moment have none between them."""
    return (later - earlier for earlier, later in pairwise(record.arrivals))


def longest_gap(record: Record) -> float:
    """0 for an answer of one arrival."""
    return max(gaps_of(record), default=0.0)


def tpot_of(record: Record) -> float | None:
    """Mean time per token after the first; None for an answer of one token."""
    if record.tokens < 2 or len(record.arrivals) < 2:
        return None
    return (record.arrivals[-1] - record.arrivals[0]) / (record.tokens - 1)


def queue_wait_of(record: Record) -> float | None:
    """Until a worker took it, from the server's word that it waits, else from sending; None where the server does not tell."""
    begun = record.queued if record.queued is not None else record.sent
    return None if record.started is None or begun is None else record.started - begun


def is_good(record: Record, slo: Slo) -> bool:
    """Whether it completed within the SLO."""
    if not is_complete(record) or not record.arrivals or record.arrivals[0] - record.due > slo.ttft_s:
        return False
    return (tpot_of(record) or 0.0) <= slo.tpot_s


def tokens_between(record: Record, begin: float, end: float) -> float:
    """Tokens that came between two moments; an answer's tokens are spread evenly over its arrivals."""
    if not record.arrivals:
        return 0.0
    return record.tokens * sum(begin <= at < end for at in record.arrivals) / len(record.arrivals)


def prompt_tokens_between(record: Record, begin: float, end: float) -> int:
    """Prompt tokens of a request whose first token came between two moments."""
    if record.usage is None or not record.arrivals or not begin <= record.arrivals[0] < end:
        return 0
    return record.usage.prompt


def cached_share(records: Iterable[Record]) -> float | None:
    """Cached prompt tokens over prompt tokens."""
    usages = [record.usage for record in records if record.usage is not None and record.usage.cached is not None]
    prompt = sum(usage.prompt for usage in usages)
    return sum(usage.cached or 0 for usage in usages) / prompt if prompt else None


def measure_tenants(records: Iterable[Record], slo: Slo) -> list[Tenant]:
    """By name; the tenants' own numbers sort as numbers."""
    by_name = sorted(records, key=lambda record: (len(record.tenant), record.tenant))
    return [_measure_tenant(name, list(group), slo) for name, group in groupby(by_name, key=lambda record: record.tenant)]


def _measure_tenant(name: str, records: Sequence[Record], slo: Slo) -> Tenant:
    completed = [record for record in records if is_complete(record)]
    ttft = Histogram(record.arrivals[0] - record.due for record in completed if record.arrivals)
    tokens = sum(record.tokens + (record.usage.prompt if record.usage else 0) for record in completed)
    good = sum(is_good(record, slo) for record in completed)
    return Tenant(name, len(records), len(completed), good, tokens, ttft.percentile(0.5), ttft.percentile(0.99))


def cost_of(samples: ProcessSamples, run: Run, tokens: float) -> ProcessCost:
    """A process's cost in the measured window."""
    cpu_s = samples.cpu_between(run.begin, run.end)
    rss = samples.rss_between(run.begin, run.end)
    return ProcessCost(samples.name, cpu_s, cpu_s / tokens * 1e6 if tokens else None, rss[-1], max(rss))

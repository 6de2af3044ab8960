"""What a reader must know before believing a figure. A result without flags is one that can be quoted."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from statistics import median

from loadtest.record import Outcome, Record
from loadtest.result import Flag, Measures, Slo

LAG_LIMIT_S = 0.05
LAG_SHARE = 0.1
"""Of the median time to first token: more lag than that shows in the figures."""
LAG_FLOOR_S = 0.005
"""Less is never flagged: a shared machine's scheduler does as much."""
GROWTH = 1.5
GROWTH_FLOOR_S = 0.05
FEWEST = 9
"""Requests below which nothing is said about growth."""


def find_flags(measures: Measures, records: Sequence[Record], slo: Slo) -> list[Flag]:
    """All that apply; `measures.flags` is not looked at."""
    checks: tuple[Callable[[], Iterator[Flag]], ...] = (
        lambda: _check_loop(measures),
        lambda: _check_overload(measures, records),
        lambda: _check_outcomes(measures),
        lambda: _check_pauses(measures, slo),
        lambda: _check_harness(measures),
        lambda: _check_tokens(records),
    )
    return [flag for check in checks for flag in check()]


def _check_loop(measures: Measures) -> Iterator[Flag]:
    if measures.load.kind == "closed":
        yield Flag(
            "CLOSED_LOOP",
            f"{measures.load.value:g} callers waited for their answers and slowed down with the server: its overload does not show in "
            f"these latencies. To see what {measures.completed_per_s:.3g} independent requests a second would see, run with that rate.",
        )


def _check_overload(measures: Measures, records: Sequence[Record]) -> Iterator[Flag]:
    """Times that grow during a run mean that more comes in than goes out, also when the run ends before anything breaks."""
    if measures.load.kind == "closed" or len(records) < FEWEST:
        return
    typical = median(map(_whole_time, records))
    if typical > measures.seconds / 2:
        yield Flag("RUN_SHORT", f"Requests took {typical:.3g} s (median), the run {measures.seconds:.3g} s: too short to tell rates by.")
    for name, time_of in (("Time to first token", _first_token_time), ("Time to the end", _whole_time)):
        first, last = _edge_medians(records, time_of)
        if last > GROWTH * first and last - first > GROWTH_FLOOR_S:
            rates = f"offered were {measures.offered_per_s:.3g} requests a second, completed {measures.completed_per_s:.3g}"
            yield Flag("OVERLOADED", f"{name} rose from {first:.3g} s to {last:.3g} s: {rates}. A longer run would show larger figures.")
            return


def _edge_medians(records: Sequence[Record], time_of: Callable[[Record], float]) -> tuple[float, float]:
    """Medians over the first and the last third of the requests."""
    times = [time_of(record) for record in sorted(records, key=lambda record: record.due)]
    third = len(times) // 3
    return median(times[:third]), median(times[-third:])


def _first_token_time(record: Record) -> float:
    """What never got a token counts with the time that it waited."""
    return (record.arrivals[0] if record.arrivals else record.ended or record.due) - record.due


def _whole_time(record: Record) -> float:
    return (record.ended or record.due) - record.due


def _check_outcomes(measures: Measures) -> Iterator[Flag]:
    for outcome, says in _OUTCOME_FLAGS.items():
        count = measures.outcomes.get(outcome, 0)
        if count:
            share = count / measures.requests
            yield Flag(outcome.upper(), f"{count} of {measures.requests} requests ({share:.1%}) {says}; latencies are without them.")
    if measures.skipped:
        yield Flag("SKIPPED", f"{measures.skipped} follow-ups were not sent because the answer before them failed.")
    if not measures.outcomes.get(Outcome.COMPLETED):
        yield Flag("NOTHING_COMPLETED", "No request completed: there are no latencies.")


_OUTCOME_FLAGS = {
    Outcome.FAILED: "failed",
    Outcome.SHED: "were refused as too many",
    Outcome.STALLED: "fell silent and were given up",
    Outcome.OVERDUE: "took too long and were given up",
}


def _check_pauses(measures: Measures, slo: Slo) -> Iterator[Flag]:
    if measures.dripping:
        yield Flag("DRIPPING", f"{measures.dripping} answers dripped: more than {slo.pause_s:g} s per token on average.")
    if measures.paused > measures.dripping:
        yield Flag("PAUSED", f"{measures.paused} answers paused for more than {slo.pause_s:g} s between tokens.")


def _check_harness(measures: Measures) -> Iterator[Flag]:
    limit = min(LAG_LIMIT_S, max(LAG_FLOOR_S, LAG_SHARE * (measures.ttft.p50 or LAG_LIMIT_S)))
    lag, delay = (_tail(values.p99, values.high) for values in (measures.loop_lag, measures.send_delay))
    if lag > limit:
        yield Flag(
            "HARNESS_LAG", f"The harness was up to {lag * 1e3:.0f} ms late (p99) in taking moments; its figures are too high by that."
        )
    if delay > limit:
        yield Flag("LATE_SENDS", f"The harness sent up to {delay * 1e3:.0f} ms late (p99): times since due include it.")


def _tail(p99: float | None, high: float | None) -> float:
    """The p99, or the largest where there are too few values for one."""
    return p99 if p99 is not None else high or 0.0


def _check_tokens(records: Sequence[Record]) -> Iterator[Flag]:
    guessed = sum(record.outcome is Outcome.COMPLETED and record.usage is None and not record.counted for record in records)
    if guessed:
        yield Flag("TOKENS_GUESSED", f"The server told no usage for {guessed} answers: each piece that came was counted as a token.")

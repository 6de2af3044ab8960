"""From records to figures, on records whose figures can be worked out by hand."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from loadtest.histogram import Histogram
from loadtest.measures import measure
from loadtest.record import Outcome, Record, Usage
from loadtest.result import Fairness, Load, Measures, Slo
from loadtest.runner import Run
from loadtest.usage import ProcessSamples, Sample

from tests.unit.loadtest.fakes import make_record

SLO = Slo(ttft_s=0.5, tpot_s=0.1, pause_s=1.0)


def figures(records: Sequence[Record], *, begin: float = 0.0, end: float = 10.0, callers: int | None = None, **run: object) -> Measures:
    load = Load("open", len(records) / (end - begin)) if callers is None else Load("closed", callers)
    lag = Histogram([0.0005] * 1000)
    values: dict[str, object] = {"skipped": 0, "lag": lag, **run}
    return measure(Run(list(records), begin, end, callers, **values), load, SLO, ProcessSamples("harness", 1))  # type: ignore[arg-type]


def codes(measures: Measures) -> list[str]:
    return [flag.code for flag in measures.flags]


def test_latencies_count_from_when_a_request_was_due() -> None:
    """Sent 0.2 s late: that is in the time to the first token, and told on its own."""
    record = make_record(1.0, [1.5, 1.6, 1.8])
    record.sent = 1.2
    told = figures([record])
    assert told.ttft.high == pytest.approx(0.5)
    assert told.e2e.high == pytest.approx(0.8)
    assert told.send_delay.high == pytest.approx(0.2)
    assert (told.itl.low, told.itl.high) == pytest.approx((0.1, 0.2))


def test_the_end_is_the_last_content() -> None:
    """Not the trailer half a second later."""
    record = Record(0, "", 0.0)
    record.send(0.0)
    record.arrive(0.1)
    record.arrive(0.2)
    record.complete(0.7)
    assert figures([record]).e2e.high == pytest.approx(0.2)


def test_time_per_token_uses_the_servers_count() -> None:
    """Three pieces held nine tokens: eight times in 0.8 s."""
    told = figures([make_record(0.0, [0.1, 0.5, 0.9], usage=Usage(5, 9))])
    assert told.tpot.high == pytest.approx(0.1)
    assert told.itl.count == 2


def test_failures_have_no_latency_and_are_flagged() -> None:
    """A failed answer is not a short good one; its tokens are waste."""
    told = figures([make_record(0.0, [0.1, 0.2]), make_record(0.0, [0.01], number=1, reason="ENGINE_FAILED")])
    assert told.outcomes == {"completed": 1, "failed": 1}
    assert told.reasons == {"ENGINE_FAILED": 1}
    assert told.ttft.count == 1
    assert (told.tokens_out_per_s, told.tokens_wasted, told.good_share) == (0.2, 1, 0.5)
    assert "FAILED" in codes(told)


def test_good_is_within_both_limits() -> None:
    """A slow first token or slow tokens make an answer not good."""
    records = [make_record(0, [0.4, 0.5]), make_record(0, [0.6, 0.7], number=1), make_record(0, [0.1, 0.3], number=2)]
    assert figures(records).good_share == pytest.approx(1 / 3)


def test_only_the_window_counts() -> None:
    """Due before it: warm-up; tokens count where they came."""
    records = [make_record(1.0, [2.0, 6.0]), make_record(6.0, [7.0, 11.0], number=1)]
    told = figures(records, begin=5.0, end=10.0)
    assert (told.requests, told.ttft.count) == (1, 1)
    assert told.completed_per_s == pytest.approx(1 / 5)
    assert told.tokens_out_per_s == pytest.approx(2 / 5)


def test_a_closed_loop_says_so() -> None:
    """Whatever its figures: callers that wait hide overload."""
    assert codes(figures([make_record(0, [0.1])], callers=4)) == ["CLOSED_LOOP", "TOKENS_GUESSED"]


def test_growing_waits_are_overload() -> None:
    """A server that does half of what is offered; also when the run ends before anything fails."""
    records = [make_record(at / 100, [at / 50 + 0.01], number=at, usage=Usage(1, 1)) for at in range(100)]
    assert "OVERLOADED" in codes(figures(records, end=1.0))


def test_steady_waits_are_not() -> None:
    """However long."""
    records = [make_record(at / 10, [at / 10 + 2.0], number=at, usage=Usage(1, 1)) for at in range(100)]
    assert codes(figures(records)) == []


def test_a_run_must_be_longer_than_its_answers() -> None:
    """What ends after it began can be a steady state or overload: nobody can tell."""
    records = [make_record(at / 10, [at / 10 + 7.0], number=at, usage=Usage(1, 1)) for at in range(100)]
    assert codes(figures(records)) == ["RUN_SHORT"]


def test_drips_and_pauses_are_told_apart() -> None:
    """More than a second per token on average, or once."""
    drip = make_record(0, [0.1, 1.6, 3.1], usage=Usage(1, 3))
    pause = make_record(0, [0.1, 0.2, 2.0, 2.1, 2.2], number=1, usage=Usage(1, 5))
    told = figures([drip, pause])
    assert (told.dripping, told.paused) == (1, 2)
    assert codes(told) == ["DRIPPING", "PAUSED"]


@pytest.mark.parametrize(("lag", "flagged"), [(0.004, False), (0.02, True), (0.2, True)])
def test_a_late_harness_taints_its_result(lag: float, flagged: bool) -> None:
    """Measured against the times that it took: 20 ms matter for a first token after 100 ms."""
    told = figures([make_record(0, [0.1], usage=Usage(1, 1))], lag=Histogram([lag] * 1000))
    assert ("HARNESS_LAG" in codes(told)) is flagged


def test_late_sends_taint_a_result() -> None:
    """They are the harness's, not the server's."""
    record = make_record(0, [0.5], usage=Usage(1, 1))
    record.sent = 0.1
    assert codes(figures([record])) == ["LATE_SENDS"]


def test_stalls_sheds_and_skips_are_flagged() -> None:
    """Each by its name, with a share."""
    stalled, shed = Record(0, "", 0.0), Record(1, "", 0.0)
    stalled.fail(1.0, "NO_FIRST_TOKEN", outcome=Outcome.STALLED)
    shed.fail(1.0, "WORKER_FULL", outcome=Outcome.SHED)
    told = figures([stalled, shed], skipped=3)
    assert codes(told) == ["SHED", "STALLED", "SKIPPED", "NOTHING_COMPLETED"]
    assert told.reasons == {"NO_FIRST_TOKEN": 1, "WORKER_FULL": 1}


def test_queue_wait_ends_when_a_worker_takes_it() -> None:
    """It begins with the server's word, or with sending where there is none."""
    told, silent = make_record(0, [1.0]), make_record(0, [1.0], number=1)
    told.queued, told.started, silent.started = 0.2, 0.9, 0.3
    waits = figures([told, silent]).queue_wait
    assert (waits.low, waits.high) == pytest.approx((0.3, 0.7))


def test_cache_share_is_of_prompt_tokens() -> None:
    """Servers that tell nothing are left out."""
    records = [
        make_record(0, [1.0], number=at, usage=usage) for at, usage in enumerate((Usage(100, 1, 80), Usage(300, 1, 0), Usage(50, 1)))
    ]
    assert figures(records).cached_share == pytest.approx(0.2)
    assert figures(records[2:]).cached_share is None


def test_fairness_of_service() -> None:
    """Jain's index and the ratio of the extremes, over tenants."""
    fairness = Fairness.of([1.0, 3.0])
    assert fairness is not None
    assert (fairness.jain, fairness.max_over_min) == pytest.approx((0.8, 3.0))
    assert Fairness.of([1.0]) is None
    assert Fairness.of([0.0, 2.0]) == Fairness(0.5, None)


def test_tenants_are_measured_apart() -> None:
    """Counts, tokens and times of each."""
    records = [
        make_record(0, [0.1], tenant="tenant-1", usage=Usage(10, 1)),
        make_record(0, [0.9], number=1, tenant="tenant-2", usage=Usage(20, 1)),
        make_record(0, [], number=2, tenant="tenant-2", reason="BUSY"),
    ]
    first, second = figures(records).tenants
    assert (first.name, first.requests, first.completed, first.good, first.tokens, first.ttft_p50) == ("tenant-1", 1, 1, 1, 11, 0.1)
    assert (second.requests, second.completed, second.good, second.tokens) == (2, 1, 0, 21)


def test_process_cost_is_that_of_the_window() -> None:
    """CPU seconds between samples are taken in proportion; tokens are those of the window."""
    samples = ProcessSamples("router", 1, [Sample(0, 1.0, 50), Sample(4, 3.0, 70), Sample(8, 4.0, 60)])
    run = Run([make_record(2, [3.0] * 100)], 2.0, 6.0, None, 0, Histogram())
    cost = measure(run, Load("open", 1), SLO, ProcessSamples("harness", 1), [samples]).processes[0]
    assert (cost.cpu_s, cost.rss, cost.rss_peak) == pytest.approx((1.5, 70, 70))
    assert cost.cpu_us_per_token == pytest.approx(15_000)


def test_the_timeline_adds_up() -> None:
    """What is due, ends and arrives in its slices is what the run had."""
    records = [make_record(at, [at + 0.5, at + 1.5], number=at, reason="" if at % 3 else "LOST") for at in range(9)]
    slices = figures(records).timeline
    assert sum(each.due for each in slices) == 9
    assert (sum(each.completed for each in slices), sum(each.failed for each in slices)) == (6, 3)
    assert sum(each.tokens for each in slices) == pytest.approx(18)
    assert slices[-1].running == 0
    assert max(each.running for each in slices) == 2

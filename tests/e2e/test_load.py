"""The load harness at size, against the whole system with the scripted engine inside the real Triton."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from loadtest.measures import measure
from loadtest.request import Message, Request
from loadtest.result import Load, Slo
from loadtest.runner import Patience, Runner
from loadtest.targets.converse import ConverseOptions, ConverseTarget
from loadtest.usage import ProcessSamples

from server.stack import StackOptions, run_stack

STREAMS = 2000
TOKENS = 40
LAG_S = 0.05


def requests() -> Iterator[Request]:
    """All in five seconds; an answer takes ten."""
    return (Request(number, number / 400, (Message("user", "go"),), TOKENS) for number in range(STREAMS))


@pytest.mark.slow
@pytest.mark.model
@pytest.mark.timeout(300)
async def test_two_thousand_answers_at_once_from_one_process() -> None:
    """All complete, all are under way at the same time, and the harness is in time or says that it was not."""
    engine = {"engine": "scripted", "step_us": "250000", "max_num_seqs": str(STREAMS), "kv_blocks": "1000000"}
    async with run_stack(StackOptions(engine=engine)) as stack:
        async with ConverseTarget.open(ConverseOptions(stack.router, streams=8)) as target:
            run = await Runner(target, Patience()).play_open(requests())
    told = measure(run, Load("open", 400), Slo(), ProcessSamples("harness", 1))
    assert told.outcomes == {"completed": STREAMS}
    assert max(each.running for each in told.timeline) == STREAMS
    assert told.tokens_out_per_s * told.seconds == pytest.approx(STREAMS * TOKENS)
    assert told.loop_lag.p99 is not None
    assert told.loop_lag.p99 < LAG_S or "HARNESS_LAG" in {flag.code for flag in told.flags}

"""NVIDIA's stock model as a worker: the real Triton holds the router to its contract."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import grpc
import pytest
import pytest_asyncio
from tidegate import Client, Session, TidegateError, Turn, user
from tidegate.v1.chat_service_pb2 import StreamRequest
from tidegate.v1.event_pb2 import FINISH_REASON_CANCELLED, FINISH_REASON_LENGTH, FINISH_REASON_STOP
from tidegate.v1.turn_pb2 import ResponseFormat, Sampling, TurnSpec

from server.collector import Collector
from tests.bench.router import Router, run_router
from tests.bench.tracing import caller_trace
from tests.bench.waiting import until
from tests.bench.worker import Worker
from tests.e2e.scripted import killed_at_end
from tests.e2e.stock import MAX_INPUT, MAX_SEQUENCE, StockWorker

MAIN_END, OTHER_END = 2, 0
"""The model folder's end tokens."""


@dataclass(frozen=True, slots=True)
class Bench:
    """A router in front of one stock worker, whose Triton sends its spans to the collector."""

    collector: Collector
    worker: StockWorker
    router: Router
    address: str
    folder: Path

    def play(self, *texts: str, **script: object) -> None:
        """Answers with these texts, one a step; each byte is a token."""
        self.worker.play([ids(self.folder, text) for text in texts], **script)


def ids(folder: Path, text: str) -> Sequence[int]:
    return Worker(folder).tokens_of(text)


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def bench(chatml: Path, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Bench]:
    worker = StockWorker.prepare(tmp_path_factory.mktemp("stock"), chatml)
    with Collector.start() as collector:
        async with (
            killed_at_end(await worker.start(trace_url=collector.url)) as triton,
            run_router(chatml, triton.endpoints.grpc) as router,
        ):
            yield Bench(collector, worker, router, triton.endpoints.grpc, chatml)


@pytest_asyncio.fixture(loop_scope="session")
async def session(bench: Bench) -> AsyncIterator[Session]:
    async with bench.router.client() as client, client.session() as session:
        yield session


async def failure_of(turn: Turn[str]) -> TidegateError:
    with pytest.raises(TidegateError) as failed:
        await turn.text()
    return failed.value


async def test_an_answer_streams_with_exact_usage(bench: Bench, session: Session) -> None:
    """Deltas arrive one by one, the end token is neither shown nor counted, and the end is an empty response."""
    bench.worker.play([*(ids(bench.folder, text) for text in ("Hel", "lo", "!")), [MAIN_END]])
    turn = await session.start(user("hi"), max_output_tokens=50)
    deltas = [event.text_delta.text async for event in turn if event.HasField("text_delta")]
    assert deltas == ["Hel", "lo", "!"]
    assert turn.finish_reason == FINISH_REASON_STOP
    assert turn.usage is not None
    assert turn.usage.completion_tokens == 6
    assert turn.started is not None
    assert turn.started.worker == bench.address


async def test_a_second_end_token_is_a_stop_word_that_is_not_shown(bench: Bench, session: Session) -> None:
    """The engine emits stop words; the router takes them for what they are."""
    bench.worker.play([ids(bench.folder, "yes"), [OTHER_END], ids(bench.folder, "never")])
    turn = await session.start(user("hi"), max_output_tokens=50)
    assert await turn.text() == "yes"
    assert turn.finish_reason == FINISH_REASON_STOP
    assert turn.usage is not None
    assert turn.usage.completion_tokens == 3


async def test_an_answer_that_fills_its_limit_ends_by_length(bench: Bench, session: Session) -> None:
    """The model does not say so; the router counted."""
    bench.play("a", repeat=True)
    turn = await session.start(user("hi"), max_output_tokens=9)
    assert await turn.text() == "a" * 9
    assert turn.finish_reason == FINISH_REASON_LENGTH


async def test_an_answer_cut_at_the_engines_end_ends_by_length(bench: Bench, session: Session) -> None:
    """The engine cuts silently what exceeds its longest sequence; the router knows that length from the model's configuration."""
    bench.play("aaaaaaaaaa", repeat=True)
    turn = await session.start(user("hi"), max_output_tokens=5000)
    await turn.text()
    assert turn.finish_reason == FINISH_REASON_LENGTH
    assert turn.usage is not None
    assert turn.usage.prompt_tokens + turn.usage.completion_tokens == MAX_SEQUENCE


@pytest.mark.parametrize(
    ("sampling", "told"),
    [
        (Sampling(), {"runtime_top_k": 1}),
        (Sampling(temperature=0.5, seed=7), {"temperature": 0.5, "seed": 7, "runtime_top_p": 1.0}),
        (Sampling(top_k=5, presence_penalty=0.5, seed=1), {"runtime_top_k": 5, "presence_penalty": 0.5, "seed": 1}),
    ],
)
async def test_sampling_is_told_in_the_engines_terms(bench: Bench, session: Session, sampling: Sampling, told: dict[str, float]) -> None:
    """Triton accepts each tensor's name, type and shape, and nothing is sent that does not follow from what was asked."""
    bench.play("ok")
    turn = await session.start(user("hi"), sampling=sampling)
    await turn.text()
    asked = bench.worker.log("request")[-1]
    always = {"event", "id", "input_lengths", "request_output_len", "end_id", "pad_id", "streaming"}
    assert {name: value for name, value in asked.items() if name not in always} == told
    assert (asked["end_id"], asked["pad_id"]) == (MAIN_END, MAIN_END)


async def test_options_reach_the_model(bench: Bench) -> None:
    """Guide, fewest tokens and log probabilities; callers get those of new tokens, though each response has those of the whole answer."""
    bench.play("ab", "c")
    form = ResponseFormat(regex="[abc]+")
    spec = TurnSpec(messages=[user("hi")], response_format=form, min_output_tokens=2, max_output_tokens=9, logprobs=True)
    async with bench.router.stub() as stub:
        frames = [frame async for frame in stub.Stream(StreamRequest(spec=spec))]
    told = [entry.logprob for frame in frames for event in frame.events for entry in event.logprobs.tokens]
    assert told == [-0.125, -0.25, -0.375]
    asked = bench.worker.log("request")[-1]
    assert (asked["guided_decoding_guide_type"], asked["guided_decoding_guide"], asked["min_tokens"]) == ("regex", "[abc]+", 2)


async def test_a_cancel_reaches_the_model_within_a_second(bench: Bench, session: Session) -> None:
    """Cancelling one turn ends it in the model, and no other that runs there."""
    bench.play("a", repeat=True, step_s=0.01)
    turn, other = [await session.start(user("hi"), max_output_tokens=100) for _ in range(2)]
    async for event in turn:
        if event.HasField("text_delta"):
            await turn.cancel()
            cancelled = time.monotonic()
    assert turn.finish_reason == FINISH_REASON_CANCELLED
    await until(lambda: bool(bench.worker.log("end")) and bench.worker.log("end")[-1]["cancelled"], within_s=1.0)
    assert time.monotonic() - cancelled < 1.0
    assert len(await other.text()) == 100


async def test_a_stop_text_ends_the_turn_in_the_model(bench: Bench, session: Session) -> None:
    """The router matches stop texts itself and ends the generation when one is there."""
    bench.play("a", "b", "c", "d", repeat=True)
    ended = len(bench.worker.log("end"))
    turn = await session.start(user("hi"), max_output_tokens=100, stop=["cd"])
    assert await turn.text() == "ab"
    await until(lambda: len(bench.worker.log("end")) > ended, within_s=1.0)
    assert bench.worker.log("end")[-1]["cancelled"]


async def test_a_prompt_longer_than_the_engine_takes_is_the_callers_error(bench: Bench, session: Session) -> None:
    """The model accepts it and then answers a text, from which the caller learns both lengths."""
    error = await failure_of(await session.start(user("x" * MAX_INPUT)))
    assert (error.code, error.reason) == (grpc.StatusCode.INVALID_ARGUMENT, "PROMPT_TOO_LONG")
    assert f"maximum context length is {MAX_INPUT + 1} tokens" in str(error)


async def test_a_full_queue_is_busy_not_broken(bench: Bench, session: Session) -> None:
    """The executor's text means: try again later."""
    bench.play(error="Maximum queue size of 4 has been reached, please try again later")
    error = await failure_of(await session.start(user("hi")))
    assert (error.code, error.reason, error.retry_after) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "WORKER_FULL", 1.0)


@pytest.mark.parametrize(("deltas", "reason"), [([], "ENGINE_REFUSED"), (["a"], "ENGINE_FAILED")])
async def test_other_errors_tell_when_they_came(bench: Bench, session: Session, deltas: list[str], reason: str) -> None:
    """Before the first token the engine refused the request, after it the engine failed; the text stays in the log."""
    bench.play(*deltas, error="secret detail")
    error = await failure_of(await session.start(user("hi")))
    assert (error.code, error.reason) == (grpc.StatusCode.INTERNAL, reason)
    assert "secret" not in str(error)


async def test_many_turns_at_once_have_ids_of_their_own(bench: Bench, session: Session) -> None:
    """The model keeps its requests by id, so an id must not come twice."""
    bench.play("a", repeat=True, step_s=0.001)
    turns = [await session.start(user("hi"), max_output_tokens=20) for _ in range(40)]
    assert [await turn.text() for turn in turns] == ["a" * 20] * 40
    ids = [entry["id"] for entry in bench.worker.log("request")]
    assert len(set(ids)) == len(ids)
    assert bench.router.turns_in_lanes() == 0


async def test_tritons_spans_are_in_the_callers_trace(bench: Bench) -> None:
    """A traced turn carries its context to Triton in the metadata of its stream. Several are asked, for Triton loses some traces."""
    bench.play("ok")
    for number in range(70, 75):
        async with bench.router.client(headers=caller_trace(number)) as client, client.session() as session:
            await (await session.start(user("hi"))).text()

    def is_complete(number: int) -> bool:
        return {"InferRequest", "tensorrt_llm"} <= {span.name for span in bench.collector.spans(f"{number:032x}")}

    await until(lambda: any(map(is_complete, range(70, 75))))


async def test_killing_triton_fails_its_turns_and_it_is_used_again(chatml: Path, tmp_path: Path) -> None:
    """kill -9: every turn fails as WORKER_LOST within two seconds, then there is no worker, and all is well when Triton is back."""
    worker = StockWorker.prepare(tmp_path, chatml)
    worker.play([ids(chatml, "a")], repeat=True, step_s=0.05)
    triton = await worker.start()
    async with run_router(chatml, triton.endpoints.grpc) as router, router.client() as client, client.session() as session:
        turns = [await session.start(user("hi"), max_output_tokens=100) for _ in range(8)]
        await until(lambda: len(worker.log("request")) == len(turns))
        os.kill(triton.pid, signal.SIGKILL)
        killed = time.monotonic()
        errors = await asyncio.gather(*map(failure_of, turns))
        assert time.monotonic() - killed < 2.0
        assert {(error.code, error.reason) for error in errors} == {(grpc.StatusCode.UNAVAILABLE, "WORKER_LOST")}
        await until(lambda: not any(it.up for it in router.app.workers), within_s=2.0)
        assert (await failure_of(await session.start(user("hi")))).reason == "NO_WORKER"
        await triton.wait()
        async with killed_at_end(await worker.start(int(triton.endpoints.grpc.rpartition(":")[2]))):
            await until(lambda: all(it.up for it in router.app.workers))
            assert await (await session.start(user("hi"), max_output_tokens=3)).text() == "aaa"


async def test_a_model_may_have_workers_of_both_kinds(bench: Bench) -> None:
    """One router, one model, a worker with lanes and a stock worker: turns run on both, and the kind was found out, not configured."""
    bench.play("a", repeat=True, step_s=0.005)
    lane = Worker(bench.folder, lambda request: ["a"] * request.max_new_tokens)
    async with lane.running(), run_router(bench.folder, lane.address, bench.address) as router, router.client() as client:
        assert sorted(worker.description.engine for worker in router.app.workers if worker.description) == ["scripted", "tensorrtllm"]
        answers = await asyncio.gather(*(ask(client) for _ in range(10)))
    assert {text for text, _ in answers} == {"a" * 30}
    assert {worker for _, worker in answers} == {lane.address, bench.address}


async def ask(client: Client) -> tuple[str, str]:
    """The answer, and which worker gave it."""
    async with client.session() as session:
        turn = await session.start(user("hi"), max_output_tokens=30)
        text = await turn.text()
        assert turn.started is not None
        return text, turn.started.worker

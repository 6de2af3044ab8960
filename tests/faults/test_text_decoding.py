"""From tokens to text: characters cut over tokens, bytes that are no text, text held back for stops."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from tidegate.v1.chat_service_pb2 import CompleteRequest, StreamRequest
from tidegate.v1.event_pb2 import FINISH_REASON_LENGTH, FINISH_REASON_STOP
from tidegate.v1.turn_pb2 import TurnSpec

from server.engine.scripted import log_prob_of
from tests.bench.whole import ask, run_bench
from tests.bench.worker import Emit, End, Finish, Item, Worker

TEXTS = ("🔥", "€", "👨\u200d👩\u200d👧", "e\u0301", "नि")


def split_everywhere(text: str) -> Iterator[list[bytes]]:
    """The text's bytes in two tokens, cut at each place, and one byte at a time."""
    data = text.encode()
    yield from ([data[:at], data[at:]] for at in range(1, len(data)))
    yield [bytes((byte,)) for byte in data]


async def test_a_character_cut_over_tokens_arrives_whole(chatml: Path) -> None:
    """However a character is cut over steps, deltas hold whole characters only and joined they are the text."""
    scripts: list[tuple[str, list[Item]]] = [(text, [*parts, b" ok"]) for text in TEXTS for parts in split_everywhere(text)]
    worker = Worker(chatml, lambda _: scripts[worker.calls - 1][1])
    async with run_bench(chatml, worker) as router, router.client() as client, client.session() as session:
        for text, _ in scripts:
            turn = await session.start(ask())
            deltas = [event.text_delta.text async for event in turn if event.HasField("text_delta")]
            assert "".join(deltas) == f"{text} ok"
            assert all(deltas)


async def test_an_impossible_byte_becomes_a_replacement_character(chatml: Path) -> None:
    """A byte that is no UTF-8 is shown as U+FFFD, the turn finishes with exact usage, and the stream goes on."""
    async with run_bench(chatml, Worker(chatml, ["ok", b"\xff", " end"])) as router:
        async with router.client() as client, client.session() as session:
            for _ in range(2):
                turn = await session.start(ask())
                assert await turn.text() == "ok\ufffd end"
                assert turn.finish_reason == FINISH_REASON_STOP
                assert turn.usage is not None
                assert turn.usage.completion_tokens == 7


async def test_a_character_cut_by_the_token_limit_is_shown_as_broken(chatml: Path) -> None:
    """An answer that ends in the middle of a character ends with U+FFFD and the finish that the worker told."""
    async with run_bench(chatml, Worker(chatml, ["a", b"\xf0\x9f", b"\x94\xa5"])) as router:
        async with router.client() as client, client.session() as session:
            turn = await session.start(ask(), max_output_tokens=3)
            assert await turn.text() == "a\ufffd"
            assert turn.finish_reason == FINISH_REASON_LENGTH


async def test_text_held_back_for_a_stop_is_released_at_the_end(chatml: Path) -> None:
    """When no stop follows, the text that began one is delivered before the turn finishes."""
    async with run_bench(chatml, Worker(chatml, ["AB D"])) as router, router.client() as client, client.session() as session:
        turn = await session.start(ask(), stop=["DEF"])
        events = [event async for event in turn]
    assert "".join(event.text_delta.text for event in events) == "AB D"
    assert [event.WhichOneof("event") for event in events][-2:] == ["usage", "finished"]
    assert [event.sequence for event in events] == list(range(1, len(events) + 1))


async def test_a_stop_ends_the_turn_in_the_engine(chatml: Path) -> None:
    """A stop cut over tokens ends the turn as STOP, names the stop, shows nothing of it, and ends the generation."""
    worker = Worker(chatml, lambda _: ["so far", " E", "N", "D and ", *["more"] * 400])
    async with run_bench(chatml, worker) as router, router.client() as client, client.session() as session:
        turn = await session.start(ask(), stop=["END", "never"])
        events = [event async for event in turn]
    assert "".join(event.text_delta.text for event in events) == "so far "
    assert events[-1].finished.finish_reason == FINISH_REASON_STOP
    assert events[-1].finished.stop == "END"
    assert worker.engine.cancelled == 1


async def test_an_end_without_tokens_is_an_end(chatml: Path) -> None:
    """When the worker marks the end by an empty last output, the turn ends there, with exact usage and no empty delta."""
    worker = Worker(chatml)
    async with run_bench(chatml, worker) as router, router.client() as client, client.session() as session:
        scripts: list[list[Item]] = [["abc", End(Finish.END_ID)], ["abc", End(Finish.STOP_WORDS)], ["abc"]]
        for worker.script in scripts:
            turn = await session.start(ask())
            deltas = [event.text_delta.text async for event in turn if event.HasField("text_delta")]
            assert "".join(deltas) == "abc"
            assert all(deltas)
            assert turn.usage is not None
            assert turn.usage.completion_tokens == 3


async def test_an_end_with_the_last_tokens_is_an_end(chatml: Path) -> None:
    """When the end comes together with the last tokens, they are part of the answer."""
    async with run_bench(chatml, Worker(chatml, ["abc", "def"])) as router, router.client() as client, client.session() as session:
        turn = await session.start(ask(), max_output_tokens=6)
        assert await turn.text() == "abcdef"
        assert turn.finish_reason == FINISH_REASON_LENGTH


async def test_an_answer_may_be_empty(chatml: Path) -> None:
    """An answer without any token finishes as STOP with an empty text, streamed and in one piece."""
    async with run_bench(chatml, Worker(chatml, [])) as router, router.client() as client, client.session() as session:
        turn = await session.start(ask())
        assert await turn.text() == ""
        assert turn.finish_reason == FINISH_REASON_STOP
        whole = await client.stub.Complete(CompleteRequest(spec=TurnSpec(messages=[ask()])))
        assert (whole.text, whole.finish_reason, whole.usage.completion_tokens) == ("", FINISH_REASON_STOP, 0)


async def test_a_token_outside_the_vocabulary_fails_its_turn_only(chatml: Path) -> None:
    """A worker that sends an unknown token id fails that turn; its neighbour on the same lane completes."""
    worker = Worker(chatml, lambda _: [Emit((999_999,))] if worker.calls == 1 else ["a"] * 20)
    async with run_bench(chatml, worker) as router, router.client() as client, client.session() as session:
        broken, other = await session.start(ask()), await session.start(ask())
        events = []
        with pytest.raises(Exception, match="INTERNAL") as caught:
            events = [event async for event in broken]
        assert not events
        assert "quote the request id" in str(caught.value)
        assert await other.text() == "a" * 20


async def test_log_probabilities_stay_with_their_tokens(chatml: Path) -> None:
    """Each token has its own entry, whatever share of a character it is and however many come at once; joined bytes are the text's."""
    worker, spec = Worker(chatml), TurnSpec(messages=[ask()], logprobs=True)
    async with run_bench(chatml, worker) as router, router.client() as client, client.session() as session:
        for worker.script in ([b"a\xf0\x9f", b"\x94\xa5b"], [b"a", b"\xf0", b"\x9f", b"\x94", b"\xa5b"], ["a🔥b"]):
            whole, plain = await client.stub.Complete(CompleteRequest(spec=spec)), await session.start(ask())
            streamed = [event async for frame in client.stub.Stream(StreamRequest(spec=spec)) for event in frame.events]
            assert not any([event.HasField("logprobs") async for event in plain])
            for tokens in (list(whole.logprobs), [token for event in streamed for token in event.logprobs.tokens]):
                assert b"".join(token.token_bytes for token in tokens).decode() == "a🔥b"
                assert [token.logprob for token in tokens] == [log_prob_of(token.token_id) for token in tokens]
                assert len(tokens) == whole.usage.completion_tokens == 6


async def test_log_probabilities_of_neighbours_do_not_mix(chatml: Path) -> None:
    """Of turns that share every frame, those that asked get their own tokens' values and the others none."""
    worker = Worker(chatml, lambda request: [f"{len(request.prompt)} "] * 30)
    specs = [TurnSpec(messages=[ask("x" * size)], logprobs=size % 2 == 0) for size in range(20)]
    async with run_bench(chatml, worker) as router, router.stub() as stub:
        answers = await asyncio.gather(*(stub.Complete(CompleteRequest(spec=spec)) for spec in specs))
    for spec, answer in zip(specs, answers, strict=True):
        assert b"".join(token.token_bytes for token in answer.logprobs).decode() == (answer.text if spec.logprobs else "")
        assert [token.logprob for token in answer.logprobs] == [log_prob_of(token.token_id) for token in answer.logprobs]

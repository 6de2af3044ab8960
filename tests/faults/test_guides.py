"""Answers that must have a form: what cannot be compiled is the caller's fault, told without failing anybody else or entering the log."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import grpc
from tidegate.v1.chat_service_pb2 import CompleteRequest
from tidegate.v1.turn_pb2 import JsonObject, ResponseFormat, TurnSpec

from server.engine.base import Request
from tests.bench.calls import failure_of
from tests.bench.whole import CANARY, ask, run_bench
from tests.bench.worker import End, Finish, Item, Worker

SIZE = 65_536


def refuse_guides(request: Request) -> list[Item]:
    """As an engine whose compiler does not take the guide; its words quote it."""
    return ["a"] * 100 if request.guide is None else [End(Finish.REFUSED, f"guided_decoding_guide: cannot compile {CANARY}")]


async def test_a_guide_that_cannot_be_compiled_is_the_callers_fault(chatml: Path) -> None:
    """The caller gets INVALID_ARGUMENT with the engine's words; a turn that runs meanwhile completes, and the worker stays in use."""
    worker = Worker(chatml, refuse_guides)
    bad = TurnSpec(messages=[ask()], response_format=ResponseFormat(json_schema='{"type": "nonsense"}'))
    async with run_bench(chatml, worker) as router, router.client() as client, client.session() as session:
        turn = await session.start(ask(), max_output_tokens=100)
        for _ in range(20):
            error = await failure_of(client.stub.Complete(CompleteRequest(spec=bad)))
            assert (error.code, error.reason, list(error.fields)) == (
                grpc.StatusCode.INVALID_ARGUMENT,
                "GUIDE_INVALID",
                ["response_format"],
            )
            assert "cannot compile" in error.message
        assert await turn.text() == "a" * 100
        assert all(worker.up for worker in router.app.workers)


async def test_a_guide_out_of_bounds_reaches_no_worker(chatml: Path) -> None:
    """An empty guide, or one above the limit, is refused by the router."""
    worker = Worker(chatml)
    async with run_bench(chatml, worker) as router, router.stub() as stub:
        for kind, text in product(("json_schema", "regex", "grammar"), ("", "x" * (SIZE + 1))):
            spec = TurnSpec(messages=[ask()], response_format=ResponseFormat(**{kind: text}))  # type: ignore[arg-type]
            error = await failure_of(stub.Complete(CompleteRequest(spec=spec)))
            assert (error.reason, list(error.fields)) == ("FIELD_INVALID", ["response_format"])
        assert worker.calls == 0


SCHEMA = '{"properties": {"a": {"maxLength": 42, "const": 9007199254740993}}, "x": ' + "[" * 33 + "]" * 33 + "}"
FORMATS = [
    (ResponseFormat(json_schema=SCHEMA), "json_schema", SCHEMA),
    (ResponseFormat(regex="a\\d+\n€"), "regex", "a\\d+\n€"),
    (ResponseFormat(grammar='root ::= "a"'), "ebnf_grammar", 'root ::= "a"'),
    (ResponseFormat(json_object=JsonObject()), "json", ""),
]


async def test_a_guide_reaches_the_engine_as_it_was_written(chatml: Path) -> None:
    """A schema, with its whole numbers and its depth, a regular expression and a grammar arrive at the engine letter by letter."""
    worker = Worker(chatml)
    async with run_bench(chatml, worker) as router, router.stub() as stub:
        for form, kind, text in FORMATS:
            await stub.Complete(CompleteRequest(spec=TurnSpec(messages=[ask()], response_format=form)))
            guide = worker.engine.requests[-1].guide
            assert guide is not None
            assert (guide.kind.value, guide.text) == (kind, text)

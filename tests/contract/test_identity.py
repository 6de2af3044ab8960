"""Who may call: keys on every kind of call, on open streams, and what a key is for."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf import descriptor_pool
from tidegate import Session, TidegateError
from tidegate.v1.chat_service_pb2 import CompleteRequest, ConverseRequest, CountTokensRequest, Setup, StartTurn
from tidegate.v1.turn_pb2 import TurnSpec

from router.app import REFLECTED
from router.auth.principal import Role
from router.config import ConfigInvalid
from tests.bench.calls import failure_of
from tests.bench.forging import forge_all
from tests.bench.http import chat, connect
from tests.bench.issuer import DISCOVERY, run_issuer
from tests.bench.router import Router, run_router
from tests.bench.tenants import bearer, make_key, revoke
from tests.bench.waiting import until
from tests.bench.whole import ask, run_bench
from tests.bench.worker import Worker

SPEC = TurnSpec(messages=[ask()])
LOCKED: dict[str, Any] = {"auth": {}}
"""Nobody is let in without credentials."""
HEALTH = (
    "/grpc.health.v1.Health/",
    *(f"/inference.GRPCInferenceService/{name}" for name in ("ServerLive", "ServerReady", "ModelReady")),
)
"""What load balancers ask of this router and of Triton; an empty message means the server, or the default model."""


def all_methods() -> Iterator[tuple[str, bool, bool]]:
    """Each method of every service that a router serves, but for health: path, and whether requests and responses are streams."""
    pool = descriptor_pool.Default()
    for name in REFLECTED:
        service = pool.FindServiceByName(name)
        for path, method in ((f"/{name}/{method.name}", method) for method in service.methods):
            if not path.startswith(HEALTH):
                yield path, method.client_streaming, method.server_streaming


def call_raw(channel: grpc.aio.Channel, path: str, metadata: Any, *, streams_in: bool, streams_out: bool) -> Any:
    """Calls a method with one empty message; on a stream with none, because grpc.aio loses a refusal that crosses with a write."""
    kind = f"{'stream' if streams_in else 'unary'}_{'stream' if streams_out else 'unary'}"
    call: Any = getattr(channel, kind)(path)
    return call(metadata=metadata) if streams_in else call(b"", metadata=metadata)


@pytest.mark.parametrize("metadata", [(), (("authorization", "Bearer tg_abcdefghijkl_" + "x" * 43),), (("authorization", "Basic x"),)])
async def test_every_method_wants_credentials(chatml: Path, metadata: Any) -> None:
    """Of every service and cardinality, reflection too: a new RPC is covered as soon as it exists. Health alone is open, Triton's too."""
    async with run_bench(chatml, Worker(chatml), **LOCKED) as router, grpc.aio.insecure_channel(router.target) as channel:
        await refuse_everywhere(router, metadata)
        for path in ("/grpc.health.v1.Health/Check", *HEALTH[1:]):
            assert await call_raw(channel, path, metadata, streams_in=False, streams_out=False) == b"\x08\x01"


async def refuse_everywhere(router: Router, metadata: Any) -> None:
    """Every method but health refuses this caller."""
    async with grpc.aio.insecure_channel(router.target) as channel:
        for path, streams_in, streams_out in all_methods():
            error = await failure_of(call_raw(channel, path, metadata, streams_in=streams_in, streams_out=streams_out))
            assert (path, error.code, error.reason) == (path, grpc.StatusCode.UNAUTHENTICATED, "UNAUTHENTICATED")


async def test_a_key_opens_every_kind_of_call(chatml: Path) -> None:
    """The same key on a stream, a single turn and a count."""
    async with run_bench(chatml, Worker(chatml), **LOCKED) as router, router.stub() as stub:
        headers = bearer(await make_key(router))
        assert (await stub.Complete(CompleteRequest(spec=SPEC), metadata=headers)).text == "ok"
        assert (await stub.CountTokens(CountTokensRequest(messages=[ask()]), metadata=headers)).prompt_tokens
        requests = (ConverseRequest(setup=Setup()), ConverseRequest(start=StartTurn(turn=1, spec=SPEC)))
        frames = [frame async for frame in stub.Converse(iter(requests), metadata=headers)]
        assert frames[-1].events[-1].HasField("finished")


async def test_a_key_that_is_revoked_starts_no_more_turns(chatml: Path) -> None:
    """Not on streams that are open either; the turn that runs is finished. Refused within a second."""
    worker = Worker(chatml, lambda request: ["a"] * request.max_new_tokens, step_s=0.002)
    async with run_bench(chatml, worker, **LOCKED) as router:
        key = await make_key(router)
        async with router.client() as client, client.session(headers=dict(bearer(key))) as session:
            running = await session.start(ask(), max_output_tokens=300)
            await until(lambda: worker.calls == 1)
            await revoke(router, key)
            assert await refused_within(session, 1.0) == "UNAUTHENTICATED"
            assert len(await running.text()) == 300


async def refused_within(session: Session, limit_s: float) -> str:
    """The reason of the first turn that fails."""
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline:
        try:
            await (await session.start(ask(), max_output_tokens=1)).text()
        except TidegateError as error:
            return error.reason
    raise AssertionError("turns go on")


async def test_a_key_is_for_its_models_and_roles(chatml: Path) -> None:
    """Another model, or a key without the role of a caller, is PERMISSION_DENIED: the caller is known and may not."""
    async with run_bench(chatml, Worker(chatml), **LOCKED) as router, router.stub() as stub:
        for grant in ({"models": ["other"]}, {"roles": frozenset({Role.OPERATOR})}):
            headers = bearer(await make_key(router, **grant))
            for call in (
                stub.Complete(CompleteRequest(spec=SPEC), metadata=headers),
                stub.CountTokens(CountTokensRequest(messages=[ask()]), metadata=headers),
            ):
                assert (await failure_of(call)).code is grpc.StatusCode.PERMISSION_DENIED
        assert (await stub.Complete(CompleteRequest(spec=SPEC), metadata=bearer(await make_key(router, models=["test"])))).text == "ok"


async def test_every_malformed_key_is_refused_alike(chatml: Path) -> None:
    """At both doors: non-ASCII, empty, long, two spaces, two headers, a letter that is wrong. Nothing tells one from another."""
    async with run_bench(chatml, Worker(chatml), **LOCKED) as router, router.stub() as stub, connect(router.http) as http:
        key = await make_key(router)
        wrong = key[:-1] + "-_"[key.endswith("-")]
        values = ["", "Bearer", "Bearer tg_x", "Bearer " + "x" * 5000, f"Bearer  {key}", f"Basic {key}", key, f"Bearer {wrong}"]
        errors = [await failure_of(stub.Complete(CompleteRequest(spec=SPEC), metadata=[("authorization", value)])) for value in values]
        errors.append(await failure_of(stub.Complete(CompleteRequest(spec=SPEC), metadata=[*bearer(key), *bearer(key)])))
        assert {(error.code, error.reason, error.message) for error in errors} == {
            (grpc.StatusCode.UNAUTHENTICATED, "UNAUTHENTICATED", errors[0].message)
        }
        answers = [await http.ask(value=chat("hi"), authorization=value) for value in (*values, "Bearer cl\xe9", "Bearer " + "x" * 20_000)]
        answers.append(await http.ask(value=chat("hi"), authorization=f"Bearer {key}", Authorization="Bearer x"))
        assert {(answer.status, answer.body) for answer in answers} == {(401, answers[0].body)}


async def test_an_issuer_is_known_by_its_url_alone(chatml: Path) -> None:
    """It is asked where its keys are as the router starts, and its tokens open both doors; those that are forged open no method of any."""
    with run_issuer() as issuer:
        auth = {"issuers": [issuer.section()]}
        async with run_bench(chatml, Worker(chatml), auth=auth) as router, router.stub() as stub, connect(router.http) as http:
            await until(lambda: issuer.hits["/keys"] == 1)
            assert (await stub.Complete(CompleteRequest(spec=SPEC), metadata=bearer(issuer.token()))).text == "ok"
            assert (await http.ask(value=chat("hi"), authorization=f"Bearer {issuer.token()}")).status == 200
            for token in forge_all(issuer.signer, issuer.claims(tenant="acme", sub="ann", aud="tidegate")):
                assert (await http.ask(value=chat("hi"), authorization=f"Bearer {token}")).status == 401
                await refuse_everywhere(router, bearer(token))
            assert issuer.hits == {DISCOVERY: 1, "/keys": 1}


async def test_a_router_starts_without_its_issuer(chatml: Path) -> None:
    """Keys are taken as ever; a token of that issuer cannot be checked now, which is not a wrong one."""
    auth = {"issuers": [{"url": "http://127.0.0.1:1", "audience": "tidegate", "algorithm": "RS256"}]}
    with run_issuer() as issuer:
        token = issuer.token(iss="http://127.0.0.1:1")
    async with run_bench(chatml, Worker(chatml), auth=auth) as router, router.stub() as stub:
        assert (await stub.Complete(CompleteRequest(spec=SPEC), metadata=bearer(await make_key(router)))).text == "ok"
        assert (await failure_of(stub.Complete(CompleteRequest(spec=SPEC), metadata=bearer(token)))).reason == "IDENTITY_UNKNOWN"


@pytest.mark.parametrize(
    ("issuer", "fault"),
    [
        ({"url": "http://id.example"}, "https"),
        ({"url": "id.example"}, "https"),
        ({"url": "https://id.example?a=b"}, "query"),
        ({"url": "any name", "jwks_url": "http://id.example/keys"}, "https"),
        ({"url": "https://id.example", "algorithm": "HS256"}, "algorithm"),
    ],
)
async def test_an_issuer_that_could_not_be_trusted_is_told_at_start(chatml: Path, issuer: dict[str, str], fault: str) -> None:
    """Rather than by the refusal of its tokens."""
    section = {"audience": "tidegate", "algorithm": "RS256", **issuer}
    with pytest.raises(ConfigInvalid, match=rf"auth\.issuers: .*{fault}"):
        async with run_router(chatml, auth={"issuers": [section]}, wait_up=False):
            pass

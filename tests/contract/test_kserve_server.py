"""What Triton callers may do and see: keys, quotas, metadata, statistics, limits, and what is for operators only."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import grpc
import pytest
from tritonclient.grpc import service_pb2 as triton
from tritonclient.grpc.service_pb2_grpc import GRPCInferenceServiceStub
from tritonclient.utils import InferenceServerException

from router.auth.principal import Role
from tests.bench.calls import failure_of
from tests.bench.kserve import (
    STREAM,
    ids_of,
    parameters_of,
    stream,
    text_of,
    text_request,
    tokens_request,
    triton_client,
    write_request,
)
from tests.bench.tenants import OPERATOR, bearer, entries, limit, make_key
from tests.bench.whole import CANARY, run_bench
from tests.bench.worker import Wait, Worker

PROMPT = [5, 6, 7]


async def test_every_request_is_metered(chatml: Path) -> None:
    """One entry each, under the caller's key, whichever method and model name it came by."""
    async with run_bench(chatml, Worker(chatml, ["hello"]), auth={}) as router, triton_client(router.target) as client:
        headers = dict(bearer(await make_key(router)))
        await stream(client, *[tokens_request(PROMPT, 16, STREAM)] * 2, headers=headers)
        await client.infer(**text_request("hi", 16), headers=headers)
        told = await entries(router, "acme")
    assert [(entry.model_served, entry.user, entry.completion_tokens, entry.finish) for entry in told] == [("test", "ann", 5, "stop")] * 3
    assert sorted(entry.prompt_tokens for entry in told) == [2, 3, 3]


async def test_a_key_may_stand_behind_a_space(chatml: Path) -> None:
    """perf_analyzer and genai-perf send a header `authorization: Bearer …` with what is behind the colon as it was written."""
    async with run_bench(chatml, Worker(chatml, ["ok"]), auth={}) as router, triton_client(router.target) as client:
        headers = {"authorization": f" Bearer {await make_key(router)}"}
        assert (await client.get_model_metadata("ensemble", headers=headers)).name == "ensemble"
        assert text_of(await stream(client, text_request("hi", 16, {"stream": ("BOOL", [[True]])}), headers=headers)) == "ok"


async def test_quotas_are_the_callers(chatml: Path) -> None:
    """A used-up limit refuses in words, and a budget ends an answer where it is spent."""
    async with (
        run_bench(chatml, Worker(chatml, lambda request: ["a"] * request.max_new_tokens), auth={}) as router,
        triton_client(router.target) as client,
    ):
        headers = dict(bearer(await make_key(router)))
        await limit(router, "acme", output_tokens_per_minute=100)
        told = await stream(client, tokens_request(PROMPT, 1000, STREAM), headers=headers)
        assert (len(ids_of(told)), parameters_of(told[-1])["finish_reason"]) == (100, "budget")
        (refused,) = await stream(client, tokens_request(PROMPT, 10, STREAM), headers=headers)
        assert "QUOTA_EXCEEDED: output_tokens_per_minute of the tenant is used up" in refused.message()
        with pytest.raises(InferenceServerException) as single:
            await client.infer(**tokens_request(PROMPT, 10), headers=headers)
        assert single.value.status() == "StatusCode.RESOURCE_EXHAUSTED"


async def test_a_key_is_for_its_models(chatml: Path) -> None:
    """Of another model it gets neither an answer nor its metadata, configuration or statistics; all that it may see is told to a key."""
    async with run_bench(chatml, Worker(chatml), auth={}) as router, triton_client(router.target) as client:
        headers = dict(bearer(await make_key(router, models=["other"])))
        for ask in (
            client.infer(**tokens_request(PROMPT, 16), headers=headers),
            client.get_model_metadata("tensorrt_llm", headers=headers),
            client.get_model_config("ensemble", headers=headers),
            client.get_inference_statistics("test", headers=headers),
        ):
            with pytest.raises(InferenceServerException) as refused:
                await ask
            assert refused.value.status() == "StatusCode.PERMISSION_DENIED"
        assert len((await client.get_inference_statistics(headers=headers)).model_stats) == 0
        headers = dict(bearer(await make_key(router)))
        assert len((await client.get_inference_statistics(headers=headers)).model_stats) == 5


async def test_a_router_tells_of_itself_as_triton_does(chatml: Path) -> None:
    """Live, ready, and its models with their tensors; nothing of it names a worker."""
    async with run_bench(chatml, Worker(chatml)) as router, triton_client(router.target) as client:
        assert await client.is_server_live()
        assert await client.is_server_ready()
        assert [await client.is_model_ready(name) for name in ("tensorrt_llm", "ensemble", "test", "gpt")] == [True, True, True, False]
        server = await client.get_server_metadata()
        metadata = await client.get_model_metadata("test/ensemble", "1")
        config = (await client.get_model_config("tensorrt_llm")).config
        assert (server.name, list(server.extensions)) == ("tidegate", ["model_configuration", "statistics"])
        assert (metadata.name, list(metadata.versions)) == ("test/ensemble", ["1"])
        assert {it.name for it in metadata.inputs} >= {"text_input", "max_tokens", "stream"}
        assert (config.max_batch_size, config.model_transaction_policy.decoupled) == (1, True)
        worker = router.app.config.models[0].workers[0]
        assert worker not in f"{server}{metadata}{config}"


async def test_a_router_without_workers_is_live_and_not_ready(chatml: Path) -> None:
    """Nor are its models, and requests say why."""
    async with run_bench(chatml, wait_up=False) as router, triton_client(router.target) as client:
        assert await client.is_server_live()
        assert not await client.is_server_ready()
        assert not await client.is_model_ready("tensorrt_llm")
        (refused,) = await stream(client, tokens_request(PROMPT, 1))
        assert refused.message() == "NO_WORKER: no worker of this model is up"


async def test_statistics_count_what_came_by_this_door(chatml: Path) -> None:
    """By the name that was asked for; requests that failed apart."""
    async with run_bench(chatml, Worker(chatml)) as router, triton_client(router.target) as client:
        await stream(client, *[tokens_request(PROMPT, 16)] * 2, tokens_request(PROMPT, 0))
        (told,) = (await client.get_inference_statistics("tensorrt_llm")).model_stats
        (other,) = (await client.get_inference_statistics("ensemble")).model_stats
    assert (told.inference_count, told.inference_stats.success.count, told.inference_stats.fail.count) == (2, 2, 1)
    assert other.inference_count == 0


async def test_what_changes_a_server_is_refused(chatml: Path) -> None:
    """To callers because they may not, to operators because a router has many workers; only these see the index of models."""
    async with run_bench(chatml, Worker(chatml), auth={}) as router, grpc.aio.insecure_channel(router.target) as channel:
        stub = GRPCInferenceServiceStub(channel)
        caller = bearer(await make_key(router))
        operator = bearer(await make_key(router, "ops", "root", roles=OPERATOR))
        for name in (
            *("RepositoryModelLoad", "RepositoryModelUnload", "TraceSetting"),
            *(f"{kind}SharedMemory{what}" for kind in ("System", "Cuda") for what in ("Status", "Register", "Unregister")),
        ):
            request = getattr(triton, f"{name}Request")()
            for metadata, code in ((caller, grpc.StatusCode.PERMISSION_DENIED), (operator, grpc.StatusCode.UNIMPLEMENTED)):
                assert (await failure_of(getattr(stub, name)(request, metadata=metadata))).code is code
        for metadata, code in ((caller, grpc.StatusCode.PERMISSION_DENIED), (operator, grpc.StatusCode.UNIMPLEMENTED)):
            assert (await failure_of(stub.LogSettings(triton.LogSettingsRequest(), metadata=metadata))).code is code
        index = triton.RepositoryIndexRequest()
        assert (await failure_of(stub.RepositoryIndex(index, metadata=caller))).code is grpc.StatusCode.PERMISSION_DENIED
        models = (await stub.RepositoryIndex(index, metadata=operator)).models
        assert {(it.name, it.version, it.state) for it in models} >= {("tensorrt_llm", "1", "READY"), ("test", "1", "READY")}


async def test_a_tenant_admin_is_no_operator(chatml: Path) -> None:
    """It administers its own tenant, not the server."""
    async with run_bench(chatml, Worker(chatml), auth={}) as router, triton_client(router.target) as client:
        headers = dict(bearer(await make_key(router, roles=frozenset({Role.CALLER, Role.TENANT_ADMIN}))))
        with pytest.raises(InferenceServerException) as refused:
            await client.unload_model("tensorrt_llm", headers=headers)
        assert refused.value.status() == "StatusCode.PERMISSION_DENIED"


async def test_a_message_that_is_too_large_ends_the_call_with_a_status(chatml: Path) -> None:
    """Our own, as for every service; one that is not a message too, and the connection stays usable."""
    async with run_bench(chatml, Worker(chatml), limits={"max_message_bytes": 1000}) as router:
        async with grpc.aio.insecure_channel(router.target) as channel:
            stub, large = GRPCInferenceServiceStub(channel), triton.ModelInferRequest(raw_input_contents=[b"x" * 1001])
            for call in (stub.ModelInfer(large), stub.ModelStreamInfer(iter([large]))):
                assert (await failure_of(call)).reason == "MESSAGE_TOO_LARGE"
            raw: Any = channel.stream_stream("/inference.GRPCInferenceService/ModelStreamInfer")
            assert (await failure_of(raw(iter([b"\xff"])))).reason == "MESSAGE_UNREADABLE"
            assert (await stub.ServerLive(triton.ServerLiveRequest())).live


async def test_a_stream_has_so_many_turns_at_once(chatml: Path) -> None:
    """One more is refused, and told so."""
    worker = Worker(chatml, ["a", Wait(0.2)])
    async with run_bench(chatml, worker, limits={"max_turns_per_stream": 2}) as router, triton_client(router.target) as client:
        told = await stream(client, *[tokens_request(PROMPT, 16)] * 3)
    assert [it.message() for it in told if isinstance(it, InferenceServerException)] == [
        "TOO_MANY_TURNS: at most 2 turns run at once on one stream"
    ]


async def test_prompts_are_in_no_refusal(chatml: Path) -> None:
    """Not of text, and not of names."""
    async with run_bench(chatml, Worker(chatml)) as router, triton_client(router.target) as client:
        for request in (text_request(CANARY, 0), write_request("ensemble", {CANARY * 9: ("INT32", [[1]])}), write_request(CANARY, {})):
            (refused,) = await stream(client, request)
            assert CANARY not in refused.message()

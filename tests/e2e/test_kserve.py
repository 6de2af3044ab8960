"""The router's KServe door in front of a real Triton, for NVIDIA's own client and load tool."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pytest
from loadtest.nvidia import WitnessMissing, install, link_cudart

from router.text.tokenizer import Tokenizer
from server.assets.catalogue import DEFAULT_MODEL
from server.assets.store import resolve
from server.stack import Stack
from tests.bench.kserve import STREAM, ids_of, stream, text_of, text_request, tokens_request, triton_client
from tests.bench.router import run_router
from tests.bench.tenants import entries, make_key
from tests.e2e.direct import generate_directly
from tests.missing import missing

QUESTION = "The capital of France is"
TOKENS = 12

ASKED = {
    "tensorrt_llm": {
        "input_ids": {"content": list(range(1000, 1050)), "shape": [50]},
        "request_output_len": [TOKENS],
        "streaming": [True],
        "min_tokens": [TOKENS],
    },
    # As genai-perf writes it.
    "ensemble": {"model": "ensemble", "text_input": [QUESTION], "max_tokens": [TOKENS], "stream": [True], "min_length": [TOKENS]},
}
"""perf_analyzer's input for each model."""


async def test_a_triton_client_gets_the_same_answer_from_the_router(stack: Stack) -> None:
    """In ids and in text, streamed or not, as from the worker itself."""
    tokenizer = Tokenizer.load(await asyncio.to_thread(resolve, DEFAULT_MODEL))
    prompt = tokenizer.encode_text(QUESTION)
    direct = await generate_directly(stack.worker, prompt, TOKENS)
    async with triton_client(stack.router) as client:
        assert ids_of(await stream(client, tokens_request(prompt, TOKENS, STREAM))) == direct
        assert ids_of([await client.infer(**tokens_request(prompt, TOKENS))]) == prompt + direct
        streamed = text_of(await stream(client, text_request(QUESTION, TOKENS, {"stream": ("BOOL", [[True]])})))
        assert text_of([await client.infer(**text_request(QUESTION, TOKENS))]) == QUESTION + streamed
    assert streamed.encode() == b"".join(tokenizer.token_bytes[token] for token in direct)
    assert "Paris" in streamed


@pytest.mark.slow
@pytest.mark.parametrize("model", ASKED)
async def test_perf_analyzer_runs_against_the_router(stack: Stack, tmp_path: Path, model: str) -> None:
    """With an API key as its only change: each request answered in full and metered, and without the key nothing is."""
    folder = await asyncio.to_thread(resolve, DEFAULT_MODEL)
    async with run_router(folder, stack.worker, auth={}) as router:
        key = await make_key(router)
        assert await run_perf_analyzer(router.target, model, tmp_path) != 0
        assert await run_perf_analyzer(router.target, model, tmp_path, "-H", f"authorization:Bearer {key}") == 0
        told = await entries(router, "acme")
    (experiment,) = json.loads((tmp_path / "out.json").read_text())["experiments"]
    complete = [request for request in experiment["requests"] if len(request["response_timestamps"]) > 1]
    assert len(complete) >= 20
    assert len(told) >= len(complete)
    assert {entry.completion_tokens for entry in told if entry.finish == "length"} == {TOKENS}


async def run_perf_analyzer(target: str, model: str, folder: Path, *options: str) -> int | None:
    """Its exit code, after one window of twenty requests from four callers; `out.json` in the folder is what it saw."""
    try:
        binary, libraries = await asyncio.to_thread(install), link_cudart()
    except WitnessMissing as error:
        missing("perf_analyzer", str(error))
    (folder / "in.json").write_text(json.dumps({"data": [ASKED[model]]}))
    window = (
        "--concurrency-range 4 --measurement-mode count_windows --measurement-request-count 20 --stability-percentage 999 --max-trials 3"
    )
    command: list[Any] = [binary, "-m", model, "-i", "grpc", "-u", target, "--streaming", "--input-data", folder / "in.json"]
    command += [*window.split(), "--profile-export-file", folder / "out.json", *options]
    process = await asyncio.create_subprocess_exec(*command, env={**os.environ, "LD_LIBRARY_PATH": str(libraries)})
    return await process.wait()

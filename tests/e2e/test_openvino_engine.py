"""The CPU engine itself, behind its port: what it answers on the real model, what it does with requests on a tiny one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import openvino
import openvino_genai
import pytest

from router.text.tokenizer import Tokenizer
from server.assets.prepare import prepare_folder
from server.engine.base import EngineBroken, Finish, Guide, GuideKind, Output, Request, RequestRefused, Sampling
from server.engine.openvino import OpenVinoEngine
from server.options import EngineOptions
from tests.gguf_files import write_tiny_llama

pytestmark = pytest.mark.model

POOL_BLOCKS = 20
"""640 tokens: two requests of 480 do not fit."""


@pytest.fixture(scope="module")
def tiny_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A prepared model that answers nonsense a hundred times faster."""
    work = tmp_path_factory.mktemp("tiny")
    folder = work / "model"
    folder.mkdir()
    prepare_folder(write_tiny_llama(work / "tiny.gguf"), folder)
    return folder


@pytest.fixture(scope="module")
def tiny(tiny_folder: Path) -> Iterator[OpenVinoEngine]:
    """An engine with a small KV cache; each test leaves it idle."""
    made = OpenVinoEngine(EngineOptions(tiny_folder, "tiny", kv_blocks=POOL_BLOCKS))
    yield made
    made.close()


def encode(folder: Path, question: str) -> list[int]:
    return Tokenizer.load(folder).encode_chat([{"role": "user", "content": question}])


def drain(engine: OpenVinoEngine) -> dict[int, list[Output]]:
    """Steps until idle; the outputs by request."""
    outputs: dict[int, list[Output]] = {}
    while engine.has_work():
        for output in engine.step():
            outputs.setdefault(output.number, []).append(output)
    return outputs


def tokens_of(outputs: list[Output]) -> list[int]:
    return [token for output in outputs for token in output.tokens]


async def test_a_cancelled_request_frees_its_kv_blocks_within_a_step(tiny: OpenVinoEngine) -> None:
    """While 480 of 640 tokens of KV cache are held, as large a request waits or pre-empts; after a cancel it runs at once."""
    tiny.submit(Request(1, [5] * 440, 40))
    while not tiny.step():
        pass
    tiny.cancel(1)
    tiny.submit(Request(2, [7] * 440, 8))
    steps = 0
    outputs: list[Output] = []
    while tiny.has_work():
        outputs += tiny.step()
        steps += 1
    assert len(tokens_of(outputs)) == 8
    assert {output.number for output in outputs} == {2}
    assert steps <= 440 // 128 + 1 + 8 + 1


async def test_requests_that_outgrow_the_pool_together_all_finish(tiny: OpenVinoEngine) -> None:
    """Three requests of 300 tokens in a pool of 640: pre-emption by recompute, and each brings all its tokens."""
    for number in (1, 2, 3):
        tiny.submit(Request(number, [number] * 270, 30))
    outputs = drain(tiny)
    assert [len(tokens_of(outputs[number])) for number in (1, 2, 3)] == [30, 30, 30]
    assert {outputs[number][-1].finish for number in (1, 2, 3)} == {Finish.LENGTH}


async def test_the_end_token_is_not_part_of_the_output(engine: OpenVinoEngine, folder: Path) -> None:
    """An answer that ends by itself holds no end token, as with TensorRT-LLM."""
    engine.submit(Request(1, encode(folder, "What is the capital of France?"), 40))
    outputs = drain(engine)[1]
    assert outputs[-1].finish is Finish.END_ID
    assert not set(tokens_of(outputs)) & set(engine.description.end_ids)


async def test_a_stop_id_ends_the_answer_and_is_part_of_it(engine: OpenVinoEngine, folder: Path) -> None:
    """Stop ids behave as TensorRT-LLM's stop words: in the output, and the last of it."""
    prompt = encode(folder, "What is the capital of France?")
    engine.submit(Request(1, prompt, 40))
    whole = tokens_of(drain(engine)[1])
    engine.submit(Request(2, prompt, 40, stop_ids=(whole[3],)))
    assert tokens_of(drain(engine)[2]) == whole[:4]


async def test_log_probs_align_with_tokens(engine: OpenVinoEngine, folder: Path) -> None:
    """One log probability for each token, none above zero."""
    engine.submit(Request(1, encode(folder, "Say yes."), 12, log_probs=True))
    for output in drain(engine)[1]:
        assert output.log_probs is not None
        assert len(output.log_probs) == len(output.tokens)
        assert all(value <= 0 for value in output.log_probs)


async def test_min_tokens_holds_the_end_back(engine: OpenVinoEngine, folder: Path) -> None:
    """An answer of one word goes on until the least number of tokens."""
    engine.submit(Request(1, encode(folder, "What is the capital of France?"), 40, Sampling(min_tokens=20)))
    assert len(tokens_of(drain(engine)[1])) >= 20


async def test_penalties_change_a_greedy_answer(engine: OpenVinoEngine, folder: Path) -> None:
    """Repetition, presence and frequency penalties each reach the library."""
    prompt = encode(folder, "Repeat the word tree many times.")
    settings = [Sampling(), Sampling(repetition_penalty=1.5), Sampling(presence_penalty=2.0), Sampling(frequency_penalty=2.0)]
    for number, sampling in enumerate(settings, start=1):
        engine.submit(Request(number, prompt, 40, sampling))
    outputs = drain(engine)
    answers = [tuple(tokens_of(outputs[number])) for number in range(1, 5)]
    assert answers[0] not in answers[1:]


@pytest.mark.parametrize(
    ("request_", "named"),
    [
        (Request(9, [], 4), "input_ids"),
        (Request(9, [-1], 4), "input_ids"),
        (Request(9, [100_000], 4), "input_ids"),
        (Request(9, [5], 0), "request_output_len"),
        (Request(9, [5] * 640, 1), "request_output_len"),
        (Request(9, [5], 4, Sampling(temperature=-1)), "temperature"),
        (Request(9, [5], 4, Sampling(top_p=0)), "top_p"),
        (Request(9, [5], 4, Sampling(temperature=float("nan"))), "temperature"),
        (Request(9, [5], 4, lora="poet"), "lora"),
        (Request(9, [5], 4, cache_salt="tenant"), "cache_salt"),
    ],
)
async def test_bad_requests_are_refused_by_name_and_harm_nobody(tiny: OpenVinoEngine, request_: Request, named: str) -> None:
    """The refusal names the option, and a request that runs goes on."""
    tiny.submit(Request(1, [5, 6, 7], 4))
    with pytest.raises(RequestRefused, match=f"^{named}"):
        tiny.submit(request_)
    assert len(tokens_of(drain(tiny)[1])) == 4


async def test_salted_requests_run_where_prefixes_are_not_shared(tiny_folder: Path) -> None:
    """With KV reuse off no prefix crosses tenants, so a salt is accepted, and the engine says so."""
    engine = OpenVinoEngine(EngineOptions(tiny_folder, "unshared", kv_blocks=POOL_BLOCKS, enable_kv_cache_reuse=False))
    assert engine.description.isolates_salts
    engine.submit(Request(1, [5, 6, 7], 4, cache_salt="tenant"))
    assert len(tokens_of(drain(engine)[1])) == 4
    engine.close()


async def test_a_broken_library_says_so_and_a_new_engine_serves(tiny_folder: Path) -> None:
    """What breaks the library for good (here: a schema behind our compiler's back) raises EngineBroken; an engine built after it works."""
    options = EngineOptions(tiny_folder, "fragile", kv_blocks=POOL_BLOCKS)
    engine = OpenVinoEngine(options)
    engine.submit(Request(1, [5, 6, 7], 40))
    config = openvino_genai.GenerationConfig(max_new_tokens=4)
    config.structured_output_config = openvino_genai.StructuredOutputConfig(json_schema='{"type": "nonsense"}')
    broken = engine._pipeline.add_request(999, openvino.Tensor(np.array([[5, 6]], dtype=np.int64)), config)
    with pytest.raises(EngineBroken):
        drain(engine)
    del broken
    engine.close()
    fresh = OpenVinoEngine(options)
    fresh.submit(Request(1, [5, 6, 7], 4))
    assert len(tokens_of(drain(fresh)[1])) == 4
    fresh.close()


async def test_many_different_guides_do_not_fill_memory(tiny_folder: Path) -> None:
    """The library keeps each compiled grammar for ever, so after so many it is loaded anew, between requests and losing none."""
    engine = OpenVinoEngine(EngineOptions(tiny_folder, "guided", kv_blocks=POOL_BLOCKS), max_guides=2)
    first = engine._pipeline
    for number in range(1, 5):
        engine.submit(Request(number, [5, 6, 7], 4, guide=Guide(GuideKind.REGEX, f"ab{{{number}}}")))
    outputs = drain(engine)
    assert [len(tokens_of(outputs[number])) > 0 for number in range(1, 5)] == [True] * 4
    assert engine._pipeline is not first
    engine.close()

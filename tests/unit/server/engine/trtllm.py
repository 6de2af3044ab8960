"""What the tests of the tensorrt_llm engine share: a model folder, an engine over the fake library, and ways to run it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from server.engine.base import Finish, Output, Request, Timing
from server.engine.tensorrt_llm import TensorRtLlmEngine
from server.options import TOKENS_PER_BLOCK, EngineOptions
from tests.fakes.tensorrt_llm.library import build_library
from tests.fakes.tensorrt_llm.script import Action, Script, count_up

END_ID, SECOND_END_ID = 2, 3
STEPS = 1000
"""Steps that no test needs: each gives up after 10 ms."""


def build_folder(folder: Path, **config: object) -> Path:
    """A checkpoint's configuration, with `config` in place of what is usual."""
    usual = {"max_position_embeddings": 512, "vocab_size": 1000}
    (folder / "config.json").write_text(json.dumps(config or usual))
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [END_ID, SECOND_END_ID]}))
    return folder


def build_engine_folder(folder: Path) -> Path:
    """Engines as `trtllm-build` leaves them."""
    model = {"max_position_embeddings": 4096, "vocab_size": 1000}
    return build_folder(folder, pretrained_config=model, build_config={"max_seq_len": 512, "max_input_len": 511})


def answering(*actions: Action) -> Script:
    """Plays the actions for every request but the engine's own first one."""

    def script(prompt: list[int]) -> Iterable[Action]:
        return count_up(prompt) if prompt == [1] * TOKENS_PER_BLOCK else actions

    return script


@contextmanager
def running(folder: Path, *actions: Action, release: str = "1.3", silence_s: float = 60.0, **options: Any) -> Iterator[tuple[Any, Any]]:
    """An engine that plays the actions, counting up when there are none, and the library's LLM under it."""
    library = build_library(answering(*actions) if actions else count_up, release)
    engine = TensorRtLlmEngine(EngineOptions(folder, "small", "tensorrt_llm", **options), library, silence_s)
    try:
        yield engine, library.made[-1]
    finally:
        engine.close()


@dataclass(frozen=True, slots=True)
class Answer:
    """All of a request's outputs."""

    tokens: list[int]
    finish: Finish
    log_probs: list[float]
    timing: Timing | None
    error: str | None


def collect(engine: Any, *numbers: int) -> dict[int, Answer]:
    """Steps until these requests have ended."""
    outputs: list[Output] = []
    for _ in range(STEPS):
        outputs += engine.step()
        if {output.number for output in outputs if output.finish} >= set(numbers):
            return {number: _join([output for output in outputs if output.number == number]) for number in numbers}
    raise AssertionError(f"still running: {outputs}")


def until(engine: Any, condition: Callable[[], object]) -> None:
    """Steps until the condition holds."""
    for _ in range(STEPS):
        engine.step()
        if condition():
            return
    raise AssertionError("it never held")


def ask(engine: Any, request: Request) -> Answer:
    """Runs one request to its end."""
    engine.submit(request)
    return collect(engine, request.number)[request.number]


def _join(outputs: list[Output]) -> Answer:
    last = outputs[-1]
    tokens = [token for output in outputs for token in output.tokens]
    log_probs = [value for output in outputs for value in output.log_probs or ()]
    return Answer(tokens, last.finish, log_probs, last.timing, last.error)

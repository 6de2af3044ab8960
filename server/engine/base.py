"""The engine port: what the Triton model needs of an inference engine.

An engine does in-flight batching over a paged KV cache and is driven by one thread that calls `step()` in a loop. One step advances every
scheduled sequence, usually by one token. All methods are called from that thread, so an engine needs no locks. Names and finish codes are
TensorRT-LLM's, so that its LLM API fits behind the same port.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from typing import Protocol


class Finish(IntEnum):
    """Why a sequence ended: the codes of TensorRT-LLM's executor, then ours."""

    RUNNING = 0
    END_ID = 1
    STOP_WORDS = 2
    LENGTH = 3
    TIMED_OUT = 4
    CANCELLED = 5
    FAILED = 6
    REFUSED = 7


class RequestRefused(ValueError):
    """A request this engine cannot take. The message names the option and its bounds and holds no prompt."""


class EngineBroken(RuntimeError):
    """The engine failed and cannot go on; whoever drives it must close it and build another."""


@dataclass(frozen=True, slots=True)
class Sampling:
    """How tokens are chosen; None means "not given", which differs from zero. All None is greedy decoding."""

    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    seed: int | None = None
    repetition_penalty: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    min_tokens: int | None = None

    @property
    def is_greedy(self) -> bool:
        """Whether decoding is greedy: temperature 0, top-k 1, or no field that makes sense only when sampling."""
        if self.temperature == 0 or self.top_k == 1:
            return True
        return all(value is None for value in (self.temperature, self.top_k, self.top_p, self.min_p, self.seed))


class GuideKind(StrEnum):
    """What a guide's text is; the values are TensorRT-LLM's `guided_decoding_guide_type`."""

    JSON = "json"
    JSON_SCHEMA = "json_schema"
    REGEX = "regex"
    EBNF_GRAMMAR = "ebnf_grammar"


@dataclass(frozen=True, slots=True)
class Guide:
    """Guided decoding: the answer conforms to `text`, a schema, regex or grammar; empty for JSON."""

    kind: GuideKind
    text: str = ""


@dataclass(frozen=True, slots=True)
class Request:
    """One generation.

    `number` is unique for the engine's life. `prompt` holds token ids. `max_new_tokens` bounds the answer, the end token not counted.
    `end_ids` end the answer and are not part of it; empty means the model's own. `stop_ids` end it too and are part of it, as
    TensorRT-LLM's stop words are. `cache_salt` keeps prefix reuse inside those who use the same one. `lora` names an adapter.
    `trace_headers` are W3C headers for engines that write spans of their own.
    """

    number: int
    prompt: Sequence[int]
    max_new_tokens: int
    sampling: Sampling = Sampling()
    end_ids: tuple[int, ...] = ()
    stop_ids: tuple[int, ...] = ()
    log_probs: bool = False
    guide: Guide | None = None
    cache_salt: str = ""
    lora: str = ""
    trace_headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Timing:
    """What an ended request took, in nanoseconds: waiting for a place, until the first token, and from there to the end.

    `arrived_ns` is wall-clock time since the epoch. `cached_tokens` is None where the engine does not tell.
    """

    arrived_ns: int
    queue_ns: int
    prefill_ns: int
    decode_ns: int
    cached_tokens: int | None = None


@dataclass(slots=True)
class Output:
    """What one step brought for one request: new token ids, their log probabilities when asked, and how it ended, if it did."""

    number: int
    tokens: list[int]
    finish: Finish = Finish.RUNNING
    log_probs: list[float] | None = None
    timing: Timing | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Load:
    """How busy the engine is: sequences running and waiting, KV blocks, and the length of the last step in microseconds."""

    active: int
    queued: int
    free_blocks: int
    total_blocks: int
    tokens_per_block: int
    step_us: int


@dataclass(frozen=True, slots=True)
class Description:
    """What a router must know of an engine to use it: sizes in tokens, ids, and whether a batch answers as each request alone.

    `isolates_salts` is whether it never uses a prefix for one cache salt that it cached for another; if not, it refuses salts.
    """

    model: str
    engine: str
    profile: str
    context_tokens: int
    vocabulary: int
    end_ids: tuple[int, ...]
    max_sequences: int
    total_blocks: int
    tokens_per_block: int
    isolates_salts: bool = False

    @property
    def pool_tokens(self) -> int:
        """Tokens the KV cache holds in all."""
        return self.total_blocks * self.tokens_per_block


class Engine(Protocol):
    """An inference engine. See the module docstring for the threading rule."""

    @property
    def description(self) -> Description:
        """What this engine is; constant."""
        ...

    def submit(self, request: Request) -> None:
        """Takes a request; it runs in later steps. Raises RequestRefused, and then nothing is left behind, or EngineBroken."""
        ...

    def cancel(self, number: int) -> None:
        """Ends a request without another output; its KV blocks are free after the next step. Unknown numbers are ignored."""
        ...

    def step(self) -> list[Output]:
        """Advances all scheduled sequences once and returns what is new. Raises EngineBroken when the engine cannot go on."""
        ...

    def has_work(self) -> bool:
        """Whether a step would do anything: sequences run or wait, or cancelled ones still hold KV blocks."""
        ...

    def load(self) -> Load:
        """The load after the last step."""
        ...

    def take_kv_events(self) -> list[Mapping[str, object]]:
        """KV cache events since the last call, oldest first, as TensorRT-LLM's serializer gives them; none where the engine has none."""
        ...

    def close(self) -> None:
        """Frees everything; afterwards only `has_work` may be called, and is False."""
        ...


def check_request(request: Request, engine: Description) -> None:
    """Raises RequestRefused for what would harm the engine or the other requests in it.

    Engines accept ids outside the vocabulary silently, answer past the model's context, and drop *every* sequence when one alone
    outgrows the KV cache; so this is checked before a request gets near them.
    """
    if not request.prompt:
        raise RequestRefused("input_ids: must hold at least one token id")
    if min(request.prompt) < 0 or max(request.prompt) >= engine.vocabulary:
        raise RequestRefused(f"input_ids: token ids must be from 0 to {engine.vocabulary - 1}")
    if request.max_new_tokens < 1:
        raise RequestRefused("request_output_len: must be at least 1")
    if any(not 0 <= token < engine.vocabulary for token in request.end_ids):
        raise RequestRefused(f"end_id: must be from 0 to {engine.vocabulary - 1}")
    if (request.sampling.min_tokens or 0) > request.max_new_tokens:
        raise RequestRefused("min_tokens: must be at most request_output_len")
    total = len(request.prompt) + request.max_new_tokens
    room = min(engine.context_tokens, engine.pool_tokens)
    if total > room:
        raise RequestRefused(
            f"request_output_len: prompt ({len(request.prompt)}) and output ({request.max_new_tokens}) exceed {room} tokens"
        )
    check_sampling(request.sampling)


def check_sampling(sampling: Sampling) -> None:
    """Raises RequestRefused for values outside what the engines define."""
    for name, low, high in _RANGES:
        value = getattr(sampling, name)
        if value is not None and not low <= value <= high:
            raise RequestRefused(f"{name}: must be from {low} to {high}")


_RANGES: tuple[tuple[str, float, float], ...] = (
    ("temperature", 0.0, 100.0),
    ("top_k", 0, 2**31 - 1),
    ("top_p", 1e-6, 1.0),
    ("min_p", 0.0, 1 - 1e-6),
    ("repetition_penalty", 1e-6, 100.0),
    ("presence_penalty", -2.0, 2.0),
    ("frequency_penalty", -2.0, 2.0),
    ("min_tokens", 0, 2**31 - 1),
)

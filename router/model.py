"""The words of the domain: what callers ask, what happens in a turn, and what is sent to a worker. No transport, no library types."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, IntEnum
from typing import Any, NamedTuple

from router.errors import TidegateError
from router.tokens import TokenDelta
from router.tools import AUTO, Tool, ToolCallDelta, ToolChoice


class Role(Enum):
    """Who speaks a message, as chat templates name it."""

    SYSTEM = "system"
    USER = "user"
    ASSISTANT = "assistant"
    TOOL = "tool"


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call of a tool; `arguments` is JSON text."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class Message:
    """One entry of a conversation; `content` None means that none was given."""

    role: Role | None
    content: str | None
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str = ""


@dataclass(frozen=True, slots=True)
class Sampling:
    """How tokens are chosen; None is "not given", which differs from zero. All None is greedy."""

    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    seed: int | None = None
    repetition_penalty: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None


class GuideKind(Enum):
    """What a guide's text is, as workers name it."""

    JSON = "json"
    JSON_SCHEMA = "json_schema"
    REGEX = "regex"
    GRAMMAR = "ebnf_grammar"


@dataclass(frozen=True, slots=True)
class Guide:
    """The form an answer must have: a schema, regex or grammar; the text is empty for JSON."""

    kind: GuideKind
    text: str = ""


class Priority(Enum):
    """How urgent a turn is among those of its own tenant that wait. Between tenants only use and weight decide."""

    INTERACTIVE = "interactive"
    STANDARD = "standard"
    BATCH = "batch"


@dataclass(frozen=True, slots=True)
class TurnRequest:
    """What a caller asks for. Not checked yet; see checks.py. In place of messages there may be a text that is continued as it is, or its
    token ids: then the answer comes as ids, and a stop of `stop_ids` is part of it. `template_options` are what the template reads."""

    model: str
    messages: Sequence[Message]
    sampling: Sampling = Sampling()
    max_output_tokens: int | None = None
    min_output_tokens: int | None = None
    stop: Sequence[str] = ()
    guide: Guide | None = None
    logprobs: bool = False
    tools: Sequence[Tool] = ()
    tool_choice: ToolChoice = AUTO
    parallel_tool_calls: bool = True
    priority: Priority = Priority.INTERACTIVE
    max_wait_s: float | None = None
    text: str | None = None
    input_ids: Sequence[int] | None = None
    stop_ids: Sequence[Sequence[int]] = ()
    template_options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Credentials:
    """What a caller shows: its headers as they came, in pairs so that one sent twice is seen, and what TLS says of the other side."""

    headers: Sequence[tuple[str, str | bytes]] = ()
    peer: Mapping[str, Iterable[bytes]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Call:
    """The RPC or HTTP request that a turn belongs to: an id for logs and support, W3C trace headers, and what says who is calling.

    `deadline_s` is a time of the monotonic clock after which nobody wants the answer any more.
    """

    request_id: str
    trace_headers: dict[str, str] = field(default_factory=dict)
    credentials: Credentials = Credentials()
    deadline_s: float | None = None


class FinishReason(Enum):
    """Why a turn completed."""

    STOP = "stop"
    LENGTH = "length"
    CANCELLED = "cancelled"
    TOOL_CALLS = "tool_calls"
    BUDGET = "budget"


class Queued(NamedTuple):
    """The turn waits: turns in front of it, and seconds until it begins; one wait in ten is below `low_s`, one above `high_s`."""

    position: int
    eta_s: float
    low_s: float
    high_s: float


class Allowance(NamedTuple):
    """One limit of the caller's quotas and what was left of it when the turn had been booked."""

    subject: str
    name: str
    limit: int
    left: int


class Degraded(NamedTuple):
    """Another model answers than the one asked for; the reason is UPPER_SNAKE."""

    from_model: str
    to_model: str
    reason: str


@dataclass(frozen=True, slots=True)
class Started:
    """A worker has taken the turn, which the ledger knows as `turn_id`; it is expected to have `cached_tokens` of the prompt cached."""

    model: str
    worker: str
    prompt_tokens: int
    max_output_tokens: int
    turn_id: str = ""
    allowances: tuple[Allowance, ...] = ()
    cached_tokens: int = 0


@dataclass(frozen=True, slots=True)
class TextDelta:
    """New text; whole characters only."""

    text: str


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """A generated token: its id, its bytes, and the natural logarithm of its probability."""

    token: int
    data: bytes
    logprob: float


@dataclass(frozen=True, slots=True)
class Logprobs:
    """Log probabilities, one entry for each new token."""

    tokens: Sequence[TokenLogprob]


@dataclass(frozen=True, slots=True)
class Usage:
    """Token counts. `cached_tokens` are part of `prompt_tokens`."""

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Finished:
    """The turn is complete. Terminal."""

    reason: FinishReason
    stop: str = ""


@dataclass(frozen=True, slots=True)
class Failed:
    """The turn failed. Terminal."""

    error: TidegateError


TurnEvent = Queued | Degraded | Started | TextDelta | TokenDelta | ToolCallDelta | Logprobs | Usage | Finished | Failed

Sink = Callable[[Sequence[TurnEvent]], None]
"""Takes a turn's events, oldest first, without waiting."""


class WorkerFinish(IntEnum):
    """How a worker says that a generation ended: TensorRT-LLM's codes, then ours. Falsy while it runs: asked for every token."""

    RUNNING = 0
    END_ID = 1
    STOP_WORDS = 2
    LENGTH = 3
    TIMED_OUT = 4
    CANCELLED = 5
    FAILED = 6
    REFUSED = 7


class WorkerDelta(NamedTuple):
    """What a worker brought for one generation; a NamedTuple because one is made per running turn and engine step.

    `log_probs` aligns with `tokens`. The rest comes with the last: `refusal` is a worker's words about a request it did not take, and
    times are in seconds, zero where the worker does not say.
    """

    tokens: Sequence[int]
    finish: WorkerFinish = WorkerFinish.RUNNING
    log_probs: Sequence[float] | None = None
    cached_tokens: int | None = None
    refusal: str = ""
    prefill_s: float = 0.0
    decode_s: float = 0.0


@dataclass(frozen=True, slots=True)
class GenerationRequest:
    """What a worker is asked: prompt ids, the most new ids, how to choose them, trace headers when the turn is traced, whom it is for, for
    a receipt, and the salt of those who may share its cached prefix."""

    prompt: Sequence[int]
    max_new_tokens: int
    sampling: Sampling
    min_new_tokens: int | None = None
    guide: Guide | None = None
    log_probs: bool = False
    trace_headers: dict[str, str] = field(default_factory=dict)
    account: str = ""
    cache_salt: str = ""


@dataclass(frozen=True, slots=True)
class WorkerDescription:
    """What a worker says of itself; sizes in tokens. `pool_tokens` is what its KV cache holds, in blocks of `block_tokens`; with
    `isolates_salts` a prefix that was cached under one salt is used under no other."""

    model: str
    engine: str
    profile: str
    context_tokens: int
    vocabulary: int
    max_sequences: int
    pool_tokens: int
    block_tokens: int = 32
    isolates_salts: bool = False


@dataclass(frozen=True, slots=True)
class WorkerLoad:
    """A worker's load with its newest frame: sequences running and waiting, KV blocks, last step in µs, and this router's own sequences."""

    active: int = 0
    queued: int = 0
    free_blocks: int = 0
    total_blocks: int = 0
    tokens_per_block: int = 0
    step_us: int = 0
    own: int = 0

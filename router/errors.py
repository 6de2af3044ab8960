"""The error tree, by who must act: the caller, a worker, this router, or nobody because the caller left.

Errors cross ports as these classes only; foreign exceptions are translated by the adapter that can raise them. `reason` is stable and part
of the API. Messages are short and never hold a prompt, a key or an exception's text. The mapping to gRPC lies in transport/status.py.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import accumulate


class Code(Enum):
    """Canonical status codes; the names are gRPC's."""

    INVALID_ARGUMENT = "INVALID_ARGUMENT"
    UNAUTHENTICATED = "UNAUTHENTICATED"
    PERMISSION_DENIED = "PERMISSION_DENIED"
    NOT_FOUND = "NOT_FOUND"
    ALREADY_EXISTS = "ALREADY_EXISTS"
    FAILED_PRECONDITION = "FAILED_PRECONDITION"
    UNIMPLEMENTED = "UNIMPLEMENTED"
    RESOURCE_EXHAUSTED = "RESOURCE_EXHAUSTED"
    ABORTED = "ABORTED"
    OUT_OF_RANGE = "OUT_OF_RANGE"
    UNAVAILABLE = "UNAVAILABLE"
    INTERNAL = "INTERNAL"


@dataclass(frozen=True, slots=True)
class Violation:
    """One field that is wrong: its path as in `messages[1].content`, and what would be right."""

    field: str
    description: str


MOST_MESSAGE = 1024
MOST_VIOLATIONS = 16
_MOST_FIELD, _MOST_DESCRIPTION, _MOST_IN_ALL = 96, 512, 3072
"""In bytes as gRPC writes a status's message, where each byte that is not ASCII takes three. Clients take 8 KiB of headers and trailers in
all; whatever a request holds, its refusal fits: message and details, which are in base64."""


class TidegateError(Exception):
    """Base of all errors that may reach a caller. Not raised itself. Texts are cut; of the violations `more` are not told."""

    def __init__(
        self,
        code: Code,
        reason: str,
        message: str,
        *,
        violations: tuple[Violation, ...] = (),
        more: int = 0,
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(message[:MOST_MESSAGE])
        self.code = code
        self.reason = reason
        self.violations = tuple(_take_what_fits(violations))
        self.more = more + len(violations) - len(self.violations)
        self.message = _clip(message, MOST_MESSAGE)
        self.retry_after_s = retry_after_s


def _take_what_fits(violations: Sequence[Violation]) -> Iterator[Violation]:
    room = _MOST_IN_ALL
    for given in violations[:MOST_VIOLATIONS]:
        field, description = _clip(given.field, _MOST_FIELD), _clip(given.description, _MOST_DESCRIPTION)
        room -= len(field.encode()) + len(description.encode())
        if room < 0:
            return
        yield Violation(field, description)


def _clip(text: str, most: int) -> str:
    """As much of the text as `most` bytes hold, without halves of characters that are none."""
    text = text[:most].encode("utf-8", "replace").decode()
    if text.isascii() and len(text) < most // 3:
        return text
    sizes = (1 if " " <= char <= "~" and char != "%" else 3 * len(char.encode()) for char in text)
    ends = accumulate(sizes)
    return text[: sum(end <= most for end in ends)]


class StartFailed(Exception):
    """The router cannot start; the message says what to change, for whoever runs it. Never reaches a caller."""


class CallerError(TidegateError):
    """The caller must change the request."""


class Unauthenticated(CallerError):
    """Nobody is known to be calling. Always the same words for callers: they must not tell which part was wrong."""

    def __init__(self, why: str, detail: str) -> None:
        super().__init__(Code.UNAUTHENTICATED, "UNAUTHENTICATED", "no valid credentials; send `authorization: Bearer` and a key or token")
        self.why = why
        self.detail = detail


class WorkerError(TidegateError):
    """A worker is lost, stands still, is full or failed. Says nothing about the request."""


class RouterError(TidegateError):
    """This router cannot serve now, or has a fault."""


def field_invalid(*violations: Violation, more: int = 0) -> CallerError:
    """Fields that are missing, out of range or of the wrong shape; `more` beside those given."""
    first, more = violations[0], more + max(0, len(violations) - MOST_VIOLATIONS)
    text = _clip(f"{first.field}: {first.description}", MOST_MESSAGE - 32) + (f" (and {more} more than are told)" if more else "")
    return CallerError(Code.INVALID_ARGUMENT, "FIELD_INVALID", text, violations=violations[:MOST_VIOLATIONS], more=more)


def option_unsupported(field: str, description: str) -> CallerError:
    """An option that exists in the API but that this router or model does not serve."""
    return CallerError(Code.UNIMPLEMENTED, "OPTION_UNSUPPORTED", f"{field}: {description}", violations=(Violation(field, description),))


def guide_invalid(description: str, field: str = "response_format") -> CallerError:
    """The answer's form, which `field` asks for, cannot be compiled; the description names the place."""
    return CallerError(Code.INVALID_ARGUMENT, "GUIDE_INVALID", f"{field}: {description}", violations=(Violation(field, description),))


def prompt_too_long(prompt_tokens: int, limit: int, *, at_least: bool = False) -> CallerError:
    """The prompt, of which the model takes `limit` tokens at most, leaves no room for an answer.

    `at_least`: it was not counted to its end. These are OpenAI's words: LiteLLM knows the error by them and not by its code.
    """
    more = "at least " if at_least else ""
    asked = f"you requested {more}{prompt_tokens + 1} tokens ({more}{prompt_tokens} in the prompt, at least 1 in the answer)"
    text = f"This model's maximum context length is {limit + 1} tokens. However, {asked}."
    return CallerError(Code.INVALID_ARGUMENT, "PROMPT_TOO_LONG", text, violations=(Violation("messages", text),))


def model_unknown() -> CallerError:
    """The model's name is not echoed: it may be anything, of any length."""
    text = "no such model; leave it empty for the default"
    return CallerError(Code.NOT_FOUND, "MODEL_UNKNOWN", text, violations=(Violation("model", text),))


def unknown(kind: str, field: str, text: str = "") -> CallerError:
    """Something that an administrator's request names does not exist: TENANT_UNKNOWN, KEY_UNKNOWN and so on."""
    text = text or f"no such {kind}"
    return CallerError(Code.NOT_FOUND, f"{kind.upper()}_UNKNOWN", text, violations=(Violation(field, text),))


def unauthenticated(why: str = "", detail: str = "") -> Unauthenticated:
    """No credentials, or none that hold: `why`, and the detail, are for the log."""
    return Unauthenticated(why, detail)


def permission_denied(description: str) -> CallerError:
    """The caller is known and may not do this."""
    return CallerError(Code.PERMISSION_DENIED, "PERMISSION_DENIED", description)


def identity_unknown() -> RouterError:
    """Credentials cannot be checked now; they may well be right."""
    return RouterError(Code.UNAVAILABLE, "IDENTITY_UNKNOWN", "credentials cannot be checked now", retry_after_s=1.0)


def protocol_violated(reason: str, field: str, description: str) -> CallerError:
    """The caller broke the order or form of messages on a stream."""
    return CallerError(Code.INVALID_ARGUMENT, reason, description, violations=(Violation(field, description),))


def too_many_turns(limit: int) -> CallerError:
    """The stream's turns at once are used up."""
    text = f"at most {limit} turns run at once on one stream"
    return CallerError(Code.RESOURCE_EXHAUSTED, "TOO_MANY_TURNS", text, retry_after_s=1.0)


def too_many_connections(limit: int) -> RouterError:
    """All connections that this router takes are in use."""
    return RouterError(Code.UNAVAILABLE, "TOO_MANY_CONNECTIONS", f"at most {limit} connections are open at once", retry_after_s=1.0)


def reader_too_slow() -> CallerError:
    """The caller has not read its events for too long."""
    return CallerError(Code.RESOURCE_EXHAUSTED, "READER_TOO_SLOW", "events were not read in time; the stream is closed")


def stream_unknown() -> CallerError:
    """No stream of this caller can be taken up by this id: it was never one, ended long ago, or is another caller's."""
    text = "no stream that can be resumed has this id; start a new one"
    return CallerError(Code.NOT_FOUND, "STREAM_UNKNOWN", text, violations=(Violation("setup.resume.stream_id", text),))


def resume_gap() -> CallerError:
    """The stream cannot go on behind this frame: what followed it is held no more, or was never sent."""
    text = "the frames that followed this one are not held; start a new stream"
    return CallerError(Code.OUT_OF_RANGE, "RESUME_GAP", text, violations=(Violation("setup.resume.after_sequence", text),))


def resume_unavailable() -> RouterError:
    """The stream may be at another router, which cannot be asked now."""
    return RouterError(Code.UNAVAILABLE, "RESUME_UNAVAILABLE", "the stream cannot be taken up now", retry_after_s=1.0)


def router_lost() -> RouterError:
    """The router that ran the turn is gone."""
    return RouterError(
        Code.UNAVAILABLE, "ROUTER_LOST", "the router that ran the turn was lost; the answer is incomplete", retry_after_s=1.0
    )


def stream_taken() -> CallerError:
    """Another connection of the same caller has taken the stream up, or a newer attempt had."""
    return CallerError(Code.ABORTED, "STREAM_TAKEN", "another connection has resumed this stream")


def no_worker() -> WorkerError:
    """No worker of the model is up."""
    return WorkerError(Code.UNAVAILABLE, "NO_WORKER", "no worker of this model is up", retry_after_s=1.0)


def worker_lost() -> WorkerError:
    """The connection to the worker broke while the turn ran."""
    return WorkerError(Code.UNAVAILABLE, "WORKER_LOST", "the worker was lost; the answer is incomplete", retry_after_s=1.0)


def worker_stalled() -> WorkerError:
    """The worker is connected and says nothing."""
    return WorkerError(Code.UNAVAILABLE, "WORKER_STALLED", "the worker made no progress in time", retry_after_s=1.0)


def worker_full() -> WorkerError:
    """The worker's own queue takes no more."""
    return WorkerError(Code.RESOURCE_EXHAUSTED, "WORKER_FULL", "the worker's queue is full", retry_after_s=1.0)


def engine_failed() -> WorkerError:
    """The engine gave this turn up."""
    return WorkerError(Code.INTERNAL, "ENGINE_FAILED", "the engine failed; the answer is incomplete")


def engine_refused() -> WorkerError:
    """The engine refused what the router had checked: the router and the worker disagree about the model's limits."""
    return WorkerError(Code.INTERNAL, "ENGINE_REFUSED", "the engine refused the request")


def request_quarantined() -> CallerError:
    """Workers were lost while this request ran on them, again and again."""
    text = "workers were lost each time they ran this request; it is not tried again for some minutes"
    return CallerError(Code.FAILED_PRECONDITION, "REQUEST_QUARANTINED", text)


def price_missing(model: str) -> CallerError:
    """Money limits this turn, and nobody has said what the model costs."""
    text = f"a money limit holds for this turn, and {model} has no price: an operator adds one, of 0 where it is free"
    return CallerError(Code.FAILED_PRECONDITION, "PRICE_MISSING", text)


def answer_diverged() -> RouterError:
    """The worker was lost, and the next gave another answer than the one that was begun."""
    text = "the worker was lost, and the answer cannot be continued as it began"
    return RouterError(Code.UNAVAILABLE, "ANSWER_DIVERGED", text)


def draining() -> RouterError:
    """The router is shutting down."""
    return RouterError(Code.UNAVAILABLE, "DRAINING", "this router is shutting down; use another connection", retry_after_s=0.5)


def internal() -> RouterError:
    """A fault of the router. What happened is in the log under the request id."""
    return RouterError(Code.INTERNAL, "INTERNAL", "internal error; quote the request id")


def describe_fault(error: BaseException) -> str:
    """An unexpected exception for the log: its class and the lines it passed, not its words, which may hold a prompt or a key. One line."""
    places = [f"{it.filename}:{it.lineno} in {it.name}" for it in reversed(traceback.extract_tb(error.__traceback__))]
    return f"{type(error).__name__} at {', from '.join(places)}"

"""The turns of a stream that have called tools and wait for the results: all that is needed to go on with them.

What is kept is bounded by its characters: the oldest turns are forgotten, the newest never.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from router.errors import CallerError, Code, Violation, field_invalid, protocol_violated
from router.model import Finished, FinishReason, Message, Role, Sink, TurnEvent, TurnRequest
from router.tools import AUTO
from router.transport.gathering import Gathered


@dataclass(frozen=True, slots=True)
class _Waiting:
    """A turn's request with the answer that called tools, the calls' ids, and how much that is."""

    request: TurnRequest
    calls: tuple[str, ...]
    chars: int


class WaitingTurns:
    """By their numbers."""

    def __init__(self, most_chars: int, forget: Callable[[int], None]) -> None:
        """`forget` is told the number of each turn that is pushed out."""
        self._most_chars = most_chars
        self._forget = forget
        self._turns: dict[int, _Waiting] = {}

    def __contains__(self, turn: int) -> bool:
        return turn in self._turns

    def wants(self, turn: int, results: Sequence[Message]) -> bool:
        """Whether any of these is for a call of a turn that waits."""
        return any(result.tool_call_id in self._turns[turn].calls for result in results)

    def watch(self, turn: int, request: TurnRequest, sink: Sink) -> Sink:
        """The sink for a turn that may call tools: the turn waits here before its `finished` is passed on."""
        answer = Gathered()

        def put(events: Sequence[TurnEvent]) -> None:
            answer.put(events)
            if events[-1:] and isinstance(last := events[-1], Finished) and last.reason is FinishReason.TOOL_CALLS:
                self._keep(turn, request, answer)
            sink(events)

        return put

    def go_on(self, turn: int, results: Sequence[Message]) -> TurnRequest:
        """What continues the turn, which then waits no longer. Raises CallerError TURN_UNKNOWN, or FIELD_INVALID for wrong results."""
        waiting = self._turns.get(turn)
        if waiting is None:
            raise turn_unknown()
        _check_results(waiting.calls, results)
        del self._turns[turn]
        given = {result.tool_call_id: result for result in results}
        messages = (*waiting.request.messages, *(given[call] for call in waiting.calls))
        # Forced again, it would call for ever.
        return replace(waiting.request, messages=messages, tool_choice=AUTO)

    def drop(self, turn: int) -> None:
        """The caller will give no results."""
        if self._turns.pop(turn, None):
            self._forget(turn)

    def _keep(self, turn: int, request: TurnRequest, answer: Gathered) -> None:
        said = Message(Role.ASSISTANT, answer.text or None, answer.calls)
        request = replace(request, messages=(*request.messages, said))
        self._turns[turn] = _Waiting(request, tuple(call.id for call in answer.calls), _count_chars(request))
        while len(self._turns) > 1 and sum(it.chars for it in self._turns.values()) > self._most_chars:
            self.drop(next(iter(self._turns)))


def turn_unknown() -> CallerError:
    """The turn does not wait."""
    return protocol_violated("TURN_UNKNOWN", "tool_results.turn", "no turn with this number waits for tool results")


def turn_forgotten() -> CallerError:
    """The turn would wait, but what it has said is known here no more."""
    text = (
        "this turn waits no more: its stream went to another router, or newer ones needed its room; start one with its messages and calls"
    )
    return CallerError(Code.NOT_FOUND, "TURN_FORGOTTEN", text, violations=(Violation("tool_results.turn", text),))


def _check_results(calls: Sequence[str], results: Sequence[Message]) -> None:
    wanted = set(calls)
    violations = []
    for index, result in enumerate(results):
        if result.tool_call_id not in wanted:
            violations.append(Violation(f"tool_results.results[{index}].call_id", "must be the id of a call that has no result yet"))
        wanted.discard(result.tool_call_id)
    if wanted:
        violations.append(Violation("tool_results.results", f"must hold a result for each of the turn's {len(calls)} calls"))
    if violations:
        raise field_invalid(*violations)


def _count_chars(request: TurnRequest) -> int:
    said = sum(len(it.content or "") + sum(len(call.arguments) for call in it.tool_calls) for it in request.messages)
    return said + sum(len(tool.description) + len(tool.parameters) for tool in request.tools)

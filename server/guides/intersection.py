"""Texts that several expressions allow at once, such as a pattern and a length: a grammar has no "and", a finite automaton has.

Each expression becomes places with edges between them, after Thompson, "Regular expression search algorithm", 1968. The places where a text
may stand in all expressions are one state of the automaton; characters that lead to the same state are one step.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from collections.abc import Sequence as Many
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TypeAlias

from server.guides.characters import ALPHABET, Ranges, unite
from server.guides.grammar import Chars, Choice, Literal, Node, Repeat, Sequence
from server.guides.limits import MAX_ELEMENTS, MAX_RULES, MAX_WORK
from server.guides.refusal import refuse

_State: TypeAlias = tuple[frozenset[int], ...]
"""The places where a text may stand, for each expression; those only that read on, and its end."""


@dataclass(slots=True)
class Step:
    """A state: where each character leads, and whether the text may end here."""

    ends: bool
    following: dict[int, Ranges] = field(default_factory=dict)


Automaton: TypeAlias = dict[int, Step]
"""States by number, of which a text begins in 0."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """An expression, without references, that a text must match, or must not."""

    node: Node
    matched: bool = True


def intersect_all(wanted: Many[Wanted], place: str) -> Automaton:
    """The states that lead to an end. Raises RequestRefused if there are none, or too many. The first expression must be matched.

    One expression after the other: what leads to no end goes before it is multiplied.
    """
    work = 0
    found: Node | Automaton = wanted[0].node
    for other in wanted[1:]:
        both = _Intersection((found, other.node), (True, other.matched), place, work)
        found, work = _keep_ending(both.follow(), place), both.work
    assert isinstance(found, dict), "there are several expressions"
    return found


class _Intersection:
    """Builds the automaton of several, each of which must be matched or must not."""

    def __init__(self, wanted: Many[Node | Automaton], matched: Many[bool], place: str, work: int) -> None:
        self._matched = matched
        self._where = place
        self._edges: list[list[tuple[Ranges, int]]] = []
        """From each place, over a character."""
        self._jumps: list[list[int]] = []
        """From each place, over nothing."""
        self.work = work
        self._ends = [self._add() for _ in wanted]
        self._starts = [self._enter(it, end) for it, end in zip(wanted, self._ends, strict=True)]

    def follow(self) -> Automaton:
        """All states that are reached."""
        start = tuple(self._close((it,)) for it in self._starts)
        numbers: dict[_State, int] = {start: 0}
        steps: Automaton = {}
        pending = [start]
        while pending:
            state = pending.pop()
            steps[numbers[state]] = step = Step(self._is_end(state))
            for following, ranges in self._lead(state).items():
                if following not in numbers:
                    numbers[following] = len(numbers)
                    pending.append(following)
                step.following[numbers[following]] = ranges
            self._check(len(numbers) <= MAX_RULES)
        return steps

    def _is_end(self, state: _State) -> bool:
        return all((end in places) == matched for places, end, matched in zip(state, self._ends, self._matched, strict=True))

    def _lead(self, state: _State) -> dict[_State, Ranges]:
        """Where the characters lead; those that something wanted does not bear lead nowhere."""
        found: defaultdict[_State, list[tuple[int, int]]] = defaultdict(list)
        for low, high in self._cut(state):
            following = tuple(self._close(self._step(places, low)) for places in state)
            if all(places or not matched for places, matched in zip(following, self._matched, strict=True)):
                found[following].append((low, high))
        return {following: unite(ranges) for following, ranges in found.items()}

    def _cut(self, state: _State) -> Iterator[tuple[int, int]]:
        """The alphabet in ranges whose characters all edges treat alike."""
        held = {pair for places in state for place in places for ranges, _ in self._edges[place] for pair in ranges}
        for first, last in ALPHABET:
            inner = (edge for low, high in held for edge in (low, high + 1) if first < edge <= last)
            yield from ((low, high - 1) for low, high in pairwise(sorted({first, *inner, last + 1})))

    def _step(self, places: frozenset[int], code: int) -> list[int]:
        self._spend(len(places))
        edges = (edge for place in places for edge in self._edges[place])
        return [to for ranges, to in edges if any(low <= code <= high for low, high in ranges)]

    def _close(self, places: Iterable[int]) -> frozenset[int]:
        pending = list(places)
        seen = set(pending)
        while pending:
            further = [it for it in self._jumps[pending.pop()] if it not in seen]
            seen.update(further)
            pending += further
        self._spend(len(seen))
        return frozenset(place for place in seen if self._edges[place] or place in self._ends)

    def _spend(self, work: int) -> None:
        self.work += work
        self._check(self.work <= MAX_WORK)

    def _check(self, is_small: bool) -> None:
        if not is_small:
            raise refuse(self._where, "too large: the conditions on this text have too many combinations")

    def _add(self, *jumps: int, edges: Iterable[tuple[Ranges, int]] = ()) -> int:
        self._edges.append(list(edges))
        self._jumps.append(list(jumps))
        self._check(len(self._edges) <= MAX_ELEMENTS)
        return len(self._edges) - 1

    def _enter(self, wanted: Node | Automaton, end: int) -> int:
        if not isinstance(wanted, dict):
            return self._build(wanted, end)
        entries = {number: self._add(*([end] if step.ends else [])) for number, step in wanted.items()}
        for number, step in wanted.items():
            self._edges[entries[number]] = [(ranges, entries[to]) for to, ranges in step.following.items()]
        return entries[0]

    def _build(self, node: Node, then: int) -> int:
        """The place from which the node's text leads to `then`."""
        match node:
            case Literal(text):
                for character in reversed(text):
                    then = self._add(edges=[(((ord(character), ord(character)),), then)])
                return then
            case Chars(ranges):
                return self._add(edges=[(ranges, then)])
            case Choice(options):
                return self._add(*[self._build(option, then) for option in options])
            case Sequence(parts):
                for part in reversed(parts):
                    then = self._build(part, then)
                return then
            case Repeat():
                return self._build_repeat(node, then)
            case _:
                raise AssertionError("expressions refer to nothing")

    def _build_repeat(self, repeat: Repeat, then: int) -> int:
        start = then
        if repeat.high is None:
            start = self._add(then)
            self._jumps[start].append(self._build(repeat.node, start))
        else:
            for _ in range(repeat.high - repeat.low):
                start = self._add(self._build(repeat.node, start), then)
        for _ in range(repeat.low):
            start = self._build(repeat.node, start)
        return start


def _keep_ending(steps: Automaton, place: str) -> Automaton:
    before: defaultdict[int, list[int]] = defaultdict(list)
    for number, step in steps.items():
        for following in step.following:
            before[following].append(number)
    pending = [number for number, step in steps.items() if step.ends]
    kept = set(pending)
    while pending:
        further = set(before[pending.pop()]) - kept
        kept |= further
        pending += further
    if 0 not in kept:
        raise refuse(place, "no text meets all these conditions")
    return {number: Step(steps[number].ends, {to: it for to, it in steps[number].following.items() if to in kept}) for number in kept}

"""What must hold of rules before an engine may have them. Everything here takes time linear in the rules, or nearly so."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter

from server.guides.grammar import Chars, Choice, Literal, Node, Reference, Repeat, Rule, Sequence
from server.guides.limits import MAX_OVERLAP, weigh
from server.guides.refusal import refuse


def check_rules(rules: Mapping[str, Rule]) -> None:
    """Refuses rules that describe nothing finite, that begin with themselves, or that repeat what may be empty.

    An engine that has begun something infinite can never end it. The others describe nothing new, and the engine reads them as "anything",
    or tries every way of counting them, at up to a second a token (measured: `([a-z]?){100}`). References must have their rules.
    """
    finite = _find_rules(rules, lambda node: isinstance(node, Literal | Chars))
    for name in reversed(list(rules)):
        if name not in finite:
            raise refuse(rules[name].place, "no finite answer conforms to this")
    starts = _find_starts(rules)
    try:
        TopologicalSorter({name: start.heads for name, start in starts.items()}).prepare()
    except CycleError as error:
        raise refuse(rules[error.args[1][0]].place, "this begins with itself") from None


def check_overlap(rules: Mapping[str, Rule]) -> None:
    """Refuses rules, without repetitions, of which the engine would have to follow too many at once.

    Where the next character may belong to any of n places, as in `[a-z]?[a-z]?[a-z]?`, the engine tries its tokens on all of them when it
    compiles the state: n squared times 0.7 ms of CPU time for 49,152 tokens.
    """
    starts = _find_starts(rules)
    places: dict[str, int] = {}
    overlap = 0
    for name in TopologicalSorter({name: start.heads for name, start in starts.items()}).static_order():
        places[name] = starts[name].places + sum(places[head] for head in starts[name].heads)
        overlap += places[name] * (places[name] - 1)
        if overlap > MAX_OVERLAP:
            raise refuse(rules[name].place, "too ambiguous: a text may belong to too many parts of the guide at once")


@dataclass(slots=True)
class _Need:
    """How many of a node's parts must still be shown to have a property before the node has it, and which node waits for that."""

    count: int
    above: _Need | None
    rule: str = ""


def _find_rules(rules: Mapping[str, Rule], holds: Callable[[Node], bool]) -> set[str]:
    """The rules with a property that a sequence has when all parts do, a choice when an option does, and a leaf when `holds` says so.

    Source: Dowling and Gallier, "Linear-time algorithms for testing the satisfiability of propositional Horn formulae", 1984.
    """
    waiting: defaultdict[str, list[_Need]] = defaultdict(list)
    settled: list[_Need] = []

    def add(node: Node, above: _Need) -> None:
        match node:
            case Sequence(parts):
                need = _Need(len(parts), above)
                for part in parts:
                    add(part, need)
            case Choice(options):
                need = _Need(1, above)
                for option in options:
                    add(option, need)
            case Repeat(inner, low) if low:
                add(inner, above)
            case Reference(name):
                waiting[name].append(above)
            case _ if isinstance(node, Repeat) or holds(node):
                settled.append(above)

    for name, rule in rules.items():
        add(rule.node, _Need(1, None, name))
    found: set[str] = set()
    while settled:
        need = settled.pop()
        need.count -= 1
        if need.count == 0 and need.above:
            settled.append(need.above)
        elif need.count == 0:
            found.add(need.rule)
            settled += waiting[need.rule]
    return found


@dataclass(frozen=True, slots=True)
class _Start:
    """How a node's texts begin: whether one is empty, which rules may stand first, and how many places of weight."""

    empty: bool
    heads: frozenset[str] = frozenset()
    places: int = 0


def _find_starts(rules: Mapping[str, Rule]) -> dict[str, _Start]:
    empty = _find_rules(rules, lambda node: isinstance(node, Literal) and not node.text)
    return {name: _find_start(rule.node, empty) for name, rule in rules.items()}


def _find_start(node: Node, empty_rules: set[str]) -> _Start:
    match node:
        case Literal(text):
            return _Start(not text)
        case Chars(ranges):
            return _Start(False, places=weigh(ranges) > 0)
        case Reference(name):
            return _Start(name in empty_rules, frozenset((name,)))
        case Choice(options):
            return _unite([_find_start(option, empty_rules) for option in options], any)
        case Sequence(parts):
            starts = [_find_start(part, empty_rules) for part in parts]
            reached = next((number for number, start in enumerate(starts, 1) if not start.empty), len(starts))
            return _unite(starts[:reached], all)
        case Repeat(inner, low, high, place):
            start = _find_start(inner, empty_rules)
            if start.empty and (high is None or high > 1):
                raise refuse(place, "what is repeated here may be empty")
            return _Start(start.empty or low == 0, start.heads, start.places)


def _unite(starts: list[_Start], empty: Callable[[list[bool]], bool]) -> _Start:
    heads = frozenset[str]().union(*(start.heads for start in starts))
    return _Start(empty([start.empty for start in starts]), heads, sum(start.places for start in starts))

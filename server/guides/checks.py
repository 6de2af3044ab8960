"""What must hold of rules before an engine may have them. Everything here takes time linear in the rules, or nearly so.

Each rule must describe some finite text: an engine that has begun one that does not can never end it. No rule may begin with itself, and
nothing that may be empty may be repeated: both describe nothing new, and the engine either reads them as "anything" or tries every way of
counting them, at up to a second a token (measured: `([a-z]?){100}`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter

from server.guides.grammar import Chars, Choice, Literal, Node, Reference, Repeat, Rule, Sequence
from server.guides.refusal import refuse


def check_rules(rules: dict[str, Rule]) -> None:
    """Raises RequestRefused, with the place, for rules that no engine should be given. References must have their rules."""
    finite = _find_rules(rules, lambda node: isinstance(node, Literal | Chars))
    for name, rule in reversed(rules.items()):
        if name not in finite:
            raise refuse(rule.place, "no finite answer conforms to this")
    empty = _find_rules(rules, lambda node: isinstance(node, Literal) and not node.text)
    heads = {name: _Start.of(rule.node, empty).heads for name, rule in rules.items()}
    try:
        TopologicalSorter(heads).prepare()
    except CycleError as error:
        raise refuse(rules[error.args[1][0]].place, "this begins with itself") from None


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
    """How a node's texts begin: whether one is empty, and which rules may stand first."""

    empty: bool
    heads: frozenset[str]

    @staticmethod
    def of(node: Node, empty_rules: set[str]) -> _Start:
        """Of a node, given the rules that may be empty. Raises RequestRefused where one that may be empty is repeated."""
        match node:
            case Literal(text):
                return _Start(not text, frozenset())
            case Chars():
                return _Start(False, frozenset())
            case Reference(name):
                return _Start(name in empty_rules, frozenset((name,)))
            case Choice(options):
                starts = [_Start.of(option, empty_rules) for option in options]
                return _Start(any(start.empty for start in starts), frozenset().union(*(start.heads for start in starts)))
            case Sequence(parts):
                return _begin_sequence([_Start.of(part, empty_rules) for part in parts])
            case Repeat(inner, low, high, place):
                start = _Start.of(inner, empty_rules)
                if start.empty and (high is None or high > 1):
                    raise refuse(place, "what is repeated here may be empty")
                return _Start(start.empty or low == 0, start.heads)


def _begin_sequence(starts: list[_Start]) -> _Start:
    heads: frozenset[str] = frozenset()
    for start in starts:
        heads |= start.heads
        if not start.empty:
            return _Start(False, heads)
    return _Start(True, heads)

"""Reads what `compile_guide` wrote, and tells what it means: texts that follow from it, and whether a text does."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import TypeAlias

from server.engine.base import Guide, GuideKind
from server.guides import compile_guide
from server.guides.ebnf import parse_ebnf
from server.guides.grammar import ROOT, Chars, Choice, Literal, Node, Reference, Repeat, Sequence

Rules: TypeAlias = dict[str, Node]
Rest: TypeAlias = "tuple[Node, Rest] | None"
"""What is still to be read: a node, and what follows it."""


def compile_rules(kind: GuideKind, text: str) -> Rules:
    """The rules in the text that the engine would be given."""
    return {name: rule.node for name, rule in parse_ebnf(compile_guide(Guide(kind, text))).items()}


@dataclass(slots=True)
class Writer:
    """Writes texts of a grammar at random; after `budget` choices it takes the shortest way out."""

    rules: Rules
    random: Random
    budget: int = 150

    def write(self) -> str:
        """One text."""
        lengths = _shortest(self.rules)
        pending: list[Node] = [Reference(ROOT)]
        text: list[str] = []
        choices = 0
        while pending:
            match pending.pop():
                case Literal(literal):
                    text.append(literal)
                case Chars(ranges):
                    text.append(self._pick_character(ranges))
                case Reference(name):
                    pending.append(self.rules[name])
                case Sequence(parts):
                    pending.extend(reversed(parts))
                case Choice(options):
                    choices += 1
                    within = choices <= self.budget
                    pending.append(self.random.choice(options) if within else min(options, key=lambda node: _length(node, lengths)))
                case Repeat():
                    raise AssertionError("the engine is given no repetitions")
        return "".join(text)

    def _pick_character(self, ranges: tuple[tuple[int, int], ...]) -> str:
        low, high = self.random.choice(ranges)
        return chr(self.random.randint(low, min(high, low + 200) if self.random.random() < 0.8 else high))


def matches(rules: Rules, text: str) -> bool:
    """Whether the text follows from the grammar: all ways of reading it are followed at once."""
    states: set[Rest] = {(Reference(ROOT), None)}
    for character in text:
        states = {rest for state in _expand(states, rules) if (rest := _step(state, character)) != _DEAD}
    return None in _expand(states, rules)


_DEAD: Rest = (Literal("dead"), None)


def _expand(states: set[Rest], rules: Rules) -> set[Rest]:
    """The states in which a character or the end is next."""
    pending, seen = list(states), set(states)
    ready: set[Rest] = set()
    while pending:
        state = pending.pop()
        if state is None or isinstance(state[0], Chars) or (isinstance(state[0], Literal) and state[0].text):
            ready.add(state)
            continue
        for further in _open(*state, rules):
            if further not in seen:
                seen.add(further)
                pending.append(further)
    return ready


def _open(node: Node, rest: Rest, rules: Rules) -> list[Rest]:
    match node:
        case Reference(name):
            return [(rules[name], rest)]
        case Choice(options):
            return [(option, rest) for option in options]
        case Sequence(parts):
            for part in reversed(parts):
                rest = (part, rest)
            return [rest]
        case _:
            return [rest]


def _step(state: Rest, character: str) -> Rest:
    if state is None:
        return _DEAD
    node, rest = state
    if isinstance(node, Literal) and node.text.startswith(character):
        return (Literal(node.text[1:]), rest) if len(node.text) > 1 else rest
    if isinstance(node, Chars) and any(low <= ord(character) <= high for low, high in node.ranges):
        return rest
    return _DEAD


def _shortest(rules: Rules) -> dict[str, float]:
    """The fewest steps that each rule takes to the end."""
    lengths = dict.fromkeys(rules, float("inf"))
    changed = True
    while changed:
        changed = False
        for name, node in rules.items():
            length = 1 + _length(node, lengths)
            changed, lengths[name] = changed or length < lengths[name], min(length, lengths[name])
    return lengths


def _length(node: Node, lengths: dict[str, float]) -> float:
    match node:
        case Reference(name):
            return lengths[name]
        case Sequence(parts):
            return sum(_length(part, lengths) for part in parts)
        case Choice(options):
            return min(_length(option, lengths) for option in options)
        case _:
            return 1

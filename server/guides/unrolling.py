"""Turns rules into such without repetitions, and counts what they will cost the engine.

Repetitions become right-recursive rules, each ending in what follows the repetition:

    "<" [a-z]{1,2} ">"    becomes    root ::= "<" [a-z] r1        r1 ::= [a-z] ">" | ">"

For xgrammar's own `{m,n}` is costly. OpenVINO GenAI 2026.4.1 takes 33 ms of CPU time for each place of `("a" | [^b]){32}` where this takes
8, and keeps 40 KiB for each place of `[^b]{0,32}` where this keeps 4; from 128 on, every token takes up to 0.8 s. Rules that refer to
nothing it copies to where they are referred to, and took 56 s for `[0-9]{0,200}` before a long literal; so these stay one reference away.
"""

from __future__ import annotations

from collections.abc import Mapping

from server.guides.grammar import EMPTY, ROOT, Chars, Choice, Literal, Node, Reference, Repeat, Rule, Sequence, choice, sequence, walk
from server.guides.limits import ANY, MAX_ELEMENTS, MAX_RULES, MAX_WEIGHT, weigh
from server.guides.refusal import refuse

_SHORT = 8
"""How many characters or ranges count as one element."""


def unroll_rules(rules: Mapping[str, Rule]) -> dict[str, Rule]:
    """Checked rules without repetitions, named anew. Raises RequestRefused if they become too large."""
    unroller = _Unroller(rules)
    for name, rule in rules.items():
        unroller.add(name, rule)
    return unroller.unrolled


class _Unroller:
    """Rewrites one rule after the other, adding those that repetitions need."""

    def __init__(self, rules: Mapping[str, Rule]) -> None:
        self._names = {name: name if name == ROOT else f"r{number}" for number, name in enumerate(rules)}
        self.unrolled: dict[str, Rule] = {}
        self._place = ""
        self._made = len(rules)
        self._optional: dict[tuple[Node, Node, Node], Node] = {}
        """Optional parts by themselves, what follows them, and what follows where they are left out: each becomes one rule."""
        self._elements = 0
        self._weight = 0

    def add(self, name: str, rule: Rule) -> None:
        """Rewrites a rule."""
        self._place = rule.place
        self._define(self._names[name], self._join(rule.node, EMPTY))

    def _define(self, name: str, node: Node) -> Reference:
        """Adds a rule; if it refers to nothing, the engine would copy it, and so another that only refers to it comes before it."""
        if _is_long_leaf(node):
            inner = self._name()
            self.unrolled[inner] = Rule(node, self._place)
            node = Reference(inner)
        self.unrolled[name] = Rule(node, self._place)
        return Reference(name)

    def _join(self, node: Node, end: Node) -> Node:
        """The node followed by `end`, without repetitions; `end` is such already."""
        tail = [end]
        self._prepend(node, tail)
        return sequence(reversed(tail))

    def _prepend(self, node: Node, tail: list[Node]) -> None:
        """Puts the node before what `tail` holds, last part first."""
        match node:
            case Sequence(parts):
                for part in reversed(parts):
                    self._prepend(part, tail)
            case Repeat():
                self._unroll(node, tail)
            case Choice(options) if _holds_repeat(node):
                end = self._share(sequence(reversed(tail)))
                tail[:] = [choice(self._join(option, end) for option in options)]
            case _:
                tail.append(self._rename(node))

    def _unroll(self, repeat: Repeat, tail: list[Node]) -> None:
        end = self._share(sequence(reversed(tail)))
        rest: Node = end
        if repeat.high is None:
            rest = loop = Reference(self._name())
            self._define(loop.rule, choice((self._join(repeat.node, loop), end)))
        else:
            for _ in range(repeat.high - repeat.low):
                rest = self._unroll_optional(repeat.node, rest, end)
        tail[:] = [rest]
        for _ in range(repeat.low):
            self._prepend(repeat.node, tail)
            if not isinstance(repeat.node, Literal | Chars | Reference):
                tail[:] = [self._share(sequence(reversed(tail)))]

    def _unroll_optional(self, node: Node, rest: Node, end: Node) -> Node:
        key = node, rest, end
        if key not in self._optional:
            self._optional[key] = self._share(choice((self._join(node, rest), end)))
        return self._optional[key]

    def _share(self, node: Node) -> Node:
        """Something short for the node, so that it may stand in several places."""
        if isinstance(node, Reference) or (isinstance(node, Literal) and len(node.text) <= _SHORT):
            return node
        return self._define(self._name(), node)

    def _name(self) -> str:
        self._made += 1
        if self._made > MAX_RULES:
            raise refuse(self._place, f"the guide is too large: more than {MAX_RULES} rules when repetitions are unrolled")
        return f"r{self._made}"

    def _rename(self, node: Node) -> Node:
        """A node without repetitions, its references renamed; counted here."""
        self._spend(node)
        match node:
            case Reference(name):
                return Reference(self._names[name])
            case Choice(options):
                return choice(self._rename(option) for option in options)
            case Sequence(parts):
                return sequence(self._rename(part) for part in parts)
            case _:
                return node

    def _spend(self, node: Node) -> None:
        match node:
            case Literal(text):
                self._elements += 1 + len(text) // _SHORT
            case Chars(ranges):
                self._elements += 1 + len(ranges) // _SHORT
                self._weight += weigh(ranges)
            case _:
                self._elements += 1
        if self._elements > MAX_ELEMENTS:
            raise refuse(self._place, f"the guide is too large: more than {MAX_ELEMENTS} elements when repetitions are unrolled")
        if self._weight > MAX_WEIGHT:
            raise refuse(self._place, f"the guide counts too far: texts of any characters may be counted to {MAX_WEIGHT // ANY} in all")


def _holds_repeat(node: Node) -> bool:
    return any(isinstance(inner, Repeat) for inner in walk(node))


def _is_long_leaf(node: Node) -> bool:
    """Whether the node refers to nothing and has many characters or elements."""
    inner = list(walk(node))
    size = sum(len(it.text) if isinstance(it, Literal) else 1 for it in inner)
    return size > _SHORT and not any(isinstance(it, Reference) for it in inner)

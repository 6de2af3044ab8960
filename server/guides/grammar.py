"""What guides are compiled to: rules over six kinds of node.

A node describes a set of texts. Nodes hold no rule bodies, only references, so a tree is as deep as the guide's text nests; parsers bound
that at `limits.MAX_DEPTH`, and whatever walks nodes may therefore recurse.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

from server.guides.characters import Ranges

ROOT = "root"


@dataclass(frozen=True, slots=True)
class Literal:
    """Exactly this text, which may be empty."""

    text: str


@dataclass(frozen=True, slots=True)
class Chars:
    """One character of these ranges, of which there is at least one."""

    ranges: Ranges


@dataclass(frozen=True, slots=True)
class Sequence:
    """One part after the other; at least two."""

    parts: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Choice:
    """Any one of the options; at least two."""

    options: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Repeat:
    """`node` from `low` to `high` times, None being without end. `place` says where the guide asks for it."""

    node: Node
    low: int
    high: int | None
    place: str = ""


@dataclass(frozen=True, slots=True)
class Reference:
    """What the rule of this name describes."""

    rule: str


Node: TypeAlias = Literal | Chars | Sequence | Choice | Repeat | Reference


@dataclass(frozen=True, slots=True)
class Rule:
    """A named node, and where in the caller's guide it comes from."""

    node: Node
    place: str


EMPTY = Literal("")


def sequence(parts: Iterable[Node]) -> Node:
    """The parts one after the other, flattened and with neighbouring literals joined."""
    flat: list[Node] = []
    for part in parts:
        for piece in part.parts if isinstance(part, Sequence) else (part,):
            if isinstance(piece, Literal) and flat and isinstance(flat[-1], Literal):
                flat[-1] = Literal(flat[-1].text + piece.text)
            elif piece != EMPTY:
                flat.append(piece)
    return Sequence(tuple(flat)) if len(flat) > 1 else (flat or [EMPTY])[0]


def choice(options: Iterable[Node]) -> Node:
    """Any of the options, flattened and each but once; there must be at least one."""
    flat: dict[Node, None] = {}
    for option in options:
        flat.update(dict.fromkeys(option.options if isinstance(option, Choice) else (option,)))
    return Choice(tuple(flat)) if len(flat) > 1 else next(iter(flat))


def walk(node: Node) -> Iterator[Node]:
    """The node and all within it."""
    yield node
    match node:
        case Sequence(nodes) | Choice(nodes):
            for inner in nodes:
                yield from walk(inner)
        case Repeat(inner):
            yield from walk(inner)
        case _:
            pass


def optional(node: Node) -> Node:
    """The node or nothing."""
    return Repeat(node, 0, 1)

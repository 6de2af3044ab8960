"""Stop texts in a stream: show all that surely precedes a stop, hold back what may be the beginning of one.

Theory of operation. The stops form one automaton (A. V. Aho and M. J. Corasick, "Efficient string matching", CACM 18(6), 1975). After each
character its state is the longest end of the text so far that begins a stop, so the state's depth is exactly what must be held back. A
character costs one step, amortised, whatever the length of the answer and the number of stops.

The stop that is complete first wins, and of those that end with the same character the longest, which begins first. This is the earliest
moment at which the answer can end, needs no token more than that, and does not depend on how the text is cut.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence


class StopMatcher:
    """Looks for the stops in one answer. After a match the answer is over: feed nothing more."""

    __slots__ = ("_first", "_held", "_root", "_state")

    def __init__(self, stops: Sequence[str]) -> None:
        """Raises ValueError for an empty stop, which would match everywhere."""
        if "" in stops:
            raise ValueError(f"stop[{list(stops).index('')}] is empty")
        self._first = frozenset(stop[0] for stop in stops)
        self._root = self._state = _build_automaton(stops)
        self._held = ""

    def feed(self, text: str) -> tuple[str, str | None]:
        """The text that may be shown now, and the stop that was matched. What follows a stop is dropped."""
        if self._state is self._root and self._first.isdisjoint(text):
            return text, None
        seen, state = self._held + text, self._state
        for end, character in enumerate(text, len(self._held) + 1):
            state = state.step(character)
            if state.stop:
                self.flush()
                return seen[: end - len(state.stop)], state.stop
        shown = len(seen) - state.depth
        self._held, self._state = seen[shown:], state
        return seen[:shown], None

    def flush(self) -> str:
        """The end of the answer: what was held back and began no stop after all."""
        held, self._held, self._state = self._held, "", self._root
        return held


class _Node:
    """A beginning of a stop. `stop` is the longest stop that ends here, `fallback` the longest other beginning that ends here."""

    __slots__ = ("children", "depth", "fallback", "stop")

    def __init__(self, depth: int) -> None:
        self.depth = depth
        self.stop = ""
        self.children: dict[str, _Node] = {}
        self.fallback: _Node | None = None

    def step(self, character: str) -> _Node:
        node = self
        while character not in node.children:
            if node.fallback is None:
                return node
            node = node.fallback
        return node.children[character]


def _build_automaton(stops: Iterable[str]) -> _Node:
    root = _Node(0)
    for stop in stops:
        node = root
        for character in stop:
            node = node.children.setdefault(character, _Node(node.depth + 1))
        node.stop = stop
    _link_fallbacks(root)
    return root


def _link_fallbacks(root: _Node) -> None:
    queue = deque([root])
    while queue:
        node = queue.popleft()
        for character, child in node.children.items():
            child.fallback = root if node.fallback is None else node.fallback.step(character)
            child.stop = child.stop or child.fallback.stop
            queue.append(child)

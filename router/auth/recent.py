"""A bounded memory of the most recently used."""

from __future__ import annotations

from collections import OrderedDict
from typing import Generic, TypeVar

Value = TypeVar("Value")


class Recent(Generic[Value]):
    """At most `size` values by name; the longest unused goes first."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._values: OrderedDict[str, Value] = OrderedDict()

    def __len__(self) -> int:
        return len(self._values)

    def get(self, name: str) -> Value | None:
        """The value, which becomes the most recently used."""
        value = self._values.get(name)
        if value is not None:
            self._values.move_to_end(name)
        return value

    def put(self, name: str, value: Value) -> None:
        """Adds a value, or replaces it."""
        self._values[name] = value
        self._values.move_to_end(name)
        if len(self._values) > self._size:
            self._values.popitem(last=False)

    def drop(self, name: str) -> None:
        """Forgets a value, if it is there."""
        self._values.pop(name, None)

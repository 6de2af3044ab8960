"""A worker's KV cache events: which blocks it stored and which it removed, as TensorRT-LLM's serializer tells them.

    {"event_id": 7, "window_size": 4096, "data": {"type": "stored", "parent_hash": null, "blocks": [{"block_hash": …, "tokens": […]}]}}

Block hashes are the engine's own and differ between engine versions; so they serve as names only, and blocks are known by their tokens.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple


class StoredBlock(NamedTuple):
    """A block by the engine's name, with its tokens; fewer than a block's size when it is not full."""

    name: int | str
    tokens: tuple[int, ...]


class Stored(NamedTuple):
    """A run of blocks, each following the one before; the first follows `parent`, None when it begins a sequence."""

    parent: int | str | None
    blocks: tuple[StoredBlock, ...]


class Removed(NamedTuple):
    """Blocks that are gone, by the engine's names."""

    names: tuple[int | str, ...]


def read_kv_events(events: Iterable[Mapping[str, Any]]) -> Iterator[Stored | Removed]:
    """The events that change what is stored; those of other kinds, and what cannot be read, are left out."""
    for event in events:
        try:
            read = _read(event["data"])
        except (KeyError, TypeError, ValueError, OverflowError):
            continue
        if read is not None:
            yield read


def _read(data: Mapping[str, Any]) -> Stored | Removed | None:
    if data["type"] == "stored":
        parent = data["parent_hash"]
        return Stored(None if parent is None else _read_name(parent), tuple(_read_block(block) for block in data["blocks"]))
    if data["type"] == "removed":
        return Removed(tuple(map(_read_name, data["block_hashes"])))
    return None


def _read_block(block: Mapping[str, Any]) -> StoredBlock:
    return StoredBlock(_read_name(block["block_hash"]), tuple(int(token["token_id"]) for token in block["tokens"]))


def _read_name(told: object) -> int | str:
    if isinstance(told, int | str):
        return told
    raise TypeError("no name of a block")

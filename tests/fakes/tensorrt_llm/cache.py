"""The fake's KV cache: which prefixes are there, and the events that tell of them."""

from __future__ import annotations

import json
import queue
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from .arguments import KvCacheConfig

BLOCKS = 64
"""How many blocks the GPU has room for."""


@dataclass(slots=True)
class KvCache:
    """Full blocks of prompts, by salt and all their tokens from the first on."""

    config: KvCacheConfig
    events: queue.SimpleQueue[str] = field(default_factory=queue.SimpleQueue)
    _hashes: dict[tuple[object, ...], int] = field(default_factory=dict)
    _next_event: int = 0

    def __post_init__(self) -> None:
        self._tell({"type": "created", "num_blocks_per_cache_level": [self.total_blocks, 0]})

    @property
    def total_blocks(self) -> int:
        """What `max_tokens` and the GPU leave room for."""
        limit = self.config.max_tokens
        return BLOCKS if limit is None else min(BLOCKS, limit // self.config.tokens_per_block)

    def count_reused(self, salt: object, prompt: list[int]) -> int:
        """Blocks of the prompt that are there; a hit on the last one changes its priority."""
        known = [key for key in self._keys(salt, prompt) if key in self._hashes]
        if known:
            self._tell({"type": "updated", "block_hash": self._hashes[known[-1]], "cache_level": None, "priority": None})
        return len(known)

    def store(self, salt: object, prompt: list[int]) -> None:
        """Keeps the prompt's full blocks."""
        parent: int | None = None
        for key in self._keys(salt, prompt):
            if key not in self._hashes:
                self._hashes[key] = hash(key)
                self._tell({"type": "stored", "parent_hash": parent, "blocks": [self._describe(key)]})
            parent = self._hashes[key]

    def evict(self, *salts: object) -> None:
        """Drops what is stored under these salts, or everything."""
        gone = [key for key in self._hashes if not salts or key[0] in salts]
        self._tell({"type": "removed", "block_hashes": [self._hashes.pop(key) for key in gone]})

    def _keys(self, salt: object, prompt: list[int]) -> Iterator[tuple[object, ...]]:
        size = self.config.tokens_per_block
        if self.config.enable_block_reuse:
            yield from ((salt, *prompt[:end]) for end in range(size, len(prompt) + 1, size))

    def _describe(self, key: tuple[object, ...]) -> dict[str, Any]:
        tokens = [{"type": "unique_token", "token_id": token, "token_extra_id": 0} for token in key[-self.config.tokens_per_block :]]
        return {"type": "stored_block", "block_hash": self._hashes[key], "tokens": tokens, "cache_level": 0, "priority": 35}

    def _tell(self, data: dict[str, Any]) -> None:
        if self.config.event_buffer_max_size and self.config.enable_block_reuse:
            self.events.put(json.dumps({"event_id": self._next_event, "window_size": 4096, "data": data}))
            self._next_event += 1

"""Replay of public request traces: Mooncake's JSON lines and the CSV of Azure's LLM inference traces.

Mooncake tells prompts as hashes of their 512-token prefix blocks: the same id means the same block after the same prefix. Each id becomes a
text of its own here, so prompts that share prefixes in the trace share text, and a KV cache finds as much as it would have found there.
Azure's traces tell lengths only; their prompts share nothing. Neither names tenants: they are drawn.
"""

from __future__ import annotations

import csv
import json
import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from itertools import islice
from pathlib import Path

from loadtest.request import Message, Request
from loadtest.workloads.text import make_text, pick_tenant, zipf_weights

BLOCK_TOKENS = 512


@dataclass(frozen=True, slots=True)
class Row:
    """One request of a trace; `at` in seconds from its first, `blocks` ids of prefix blocks, none where the trace does not tell."""

    at: float
    input_tokens: int
    output_tokens: int
    blocks: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Replay:
    """How a trace is replayed: `speed` 10 plays an hour in six minutes, `scale` 0.1 makes prompts and answers a tenth as long."""

    speed: float = 1.0
    scale: float = 1.0
    limit: int | None = None
    tenants: int = 1
    zipf: float = 1.1
    seed: int = 0


def read_trace(path: Path) -> Iterator[Row]:
    """The rows of a file, by its ending: .jsonl is Mooncake's, .csv Azure's. Raises ValueError for another."""
    readers = {".jsonl": read_mooncake, ".csv": read_azure}
    if path.suffix not in readers:
        raise ValueError(f"{path}: a trace is .jsonl (Mooncake) or .csv (Azure)")
    with path.open() as lines:
        yield from readers[path.suffix](lines)


def read_mooncake(lines: Iterable[str]) -> Iterator[Row]:
    """`{"timestamp": ms, "input_length": n, "output_length": n, "hash_ids": [id, …]}` a line."""
    for line in filter(str.strip, lines):
        told = json.loads(line)
        yield Row(told["timestamp"] / 1e3, told["input_length"], told["output_length"], tuple(told["hash_ids"]))


def read_azure(lines: Iterable[str]) -> Iterator[Row]:
    """Columns TIMESTAMP, ContextTokens and GeneratedTokens; timestamps have seven decimals, one more than Python reads."""
    first: datetime | None = None
    for told in csv.DictReader(lines):
        moment = datetime.fromisoformat(told["TIMESTAMP"][:26])
        first = first or moment
        yield Row((moment - first).total_seconds(), int(told["ContextTokens"]), int(told["GeneratedTokens"]))


def replay(rows: Iterable[Row], options: Replay) -> Iterator[Request]:
    """Requests at the trace's times, as they come in the file."""
    weights = zipf_weights(options.tenants, options.zipf)
    at = 0.0
    for number, row in enumerate(islice(rows, options.limit)):
        draw = random.Random(f"{options.seed} row {number}")
        at = max(at, row.at / options.speed)
        prompt = Message("user", make_prompt(row, options, draw))
        yield Request(number, at, (prompt,), max(1, round(row.output_tokens * options.scale)), pick_tenant(weights, draw))


def make_prompt(row: Row, options: Replay, draw: random.Random) -> str:
    """The row's text; its last block is cut to the prompt's length."""
    tokens = max(1, round(row.input_tokens * options.scale))
    block_tokens = max(1, round(BLOCK_TOKENS * options.scale))
    if not row.blocks:
        return make_text(tokens, draw)
    texts = [_block_text(block, block_tokens, options.seed) for block in row.blocks]
    cut = min(max(1, tokens - block_tokens * (len(texts) - 1)), block_tokens)
    texts[-1] = " ".join(texts[-1].split(" ")[:cut])
    return " ".join(texts)


@lru_cache(maxsize=4096)
def _block_text(block: int, tokens: int, seed: int) -> str:
    return make_text(tokens, random.Random(f"{seed} block {block}"))

"""Replay of traces: times, lengths and shared prefixes are the trace's."""

from __future__ import annotations

import json
from itertools import takewhile
from pathlib import Path

import pytest
from loadtest.request import Request
from loadtest.workloads.traces import Replay, Row, read_azure, read_mooncake, read_trace, replay

MOONCAKE = [
    {"timestamp": 0, "input_length": 1100, "output_length": 52, "hash_ids": [46, 47, 48]},
    {"timestamp": 1500, "input_length": 1536, "output_length": 7, "hash_ids": [46, 47, 49]},
    {"timestamp": 3000, "input_length": 40, "output_length": 1, "hash_ids": [50]},
]
AZURE = """TIMESTAMP,ContextTokens,GeneratedTokens
2023-11-16 18:17:03.9799600,4808,10
2023-11-16 18:17:04.0319600,3180,8
"""


def mooncake() -> list[Row]:
    return list(read_mooncake(json.dumps(row) for row in MOONCAKE))


def words(request: Request) -> list[str]:
    return request.messages[0].content.split(" ")


def test_mooncake_times_and_lengths_are_kept() -> None:
    """A word is a token."""
    requests = list(replay(mooncake(), Replay()))
    assert [request.at for request in requests] == [0, 1.5, 3]
    assert [len(words(request)) for request in requests] == [1100, 1536, 40]
    assert [request.output_tokens for request in requests] == [52, 7, 1]


def test_shared_blocks_are_shared_text() -> None:
    """Two blocks of 512 tokens are the same, the third is not; a prompt that shares no block shares no text."""
    first, second, third = (words(request) for request in replay(mooncake(), Replay()))
    assert first[:1024] == second[:1024]
    assert first[1024:] != second[1024 : len(first)]
    assert third[:8] not in (first[:8], second[:8])


def test_a_scaled_trace_shares_the_same_part() -> None:
    """A tenth of the length: blocks of 51 tokens."""
    first, second, third = (words(request) for request in replay(mooncake(), Replay(scale=0.1)))
    assert (len(first), len(second), len(third)) == (110, 153, 4)
    shared = list(takewhile(lambda pair: pair[0] == pair[1], zip(first, second, strict=False)))
    assert len(shared) == pytest.approx(102, abs=1)


def test_speed_and_limit() -> None:
    """Ten times as fast, the first two only."""
    assert [request.at for request in replay(mooncake(), Replay(speed=10, limit=2))] == [0, 0.15]


def test_tenants_are_drawn_by_seed() -> None:
    """The same for the same seed, and text of another seed is other text."""
    rows = [Row(0, 5, 5)] * 200
    first, again, other = (list(replay(rows, Replay(tenants=4, seed=seed))) for seed in (1, 1, 2))
    assert first == again
    assert first != other
    tenants = [request.tenant for request in first]
    assert tenants.count("tenant-1") > tenants.count("tenant-4") > 0


def test_azure_rows_are_read() -> None:
    """Seconds from the first row; seven decimals are read."""
    first, second = read_azure(AZURE.splitlines())
    assert first == Row(0, 4808, 10)
    assert (second.at, second.input_tokens, second.output_tokens) == pytest.approx((0.052, 3180, 8))


def test_a_file_is_read_by_its_ending(tmp_path: Path) -> None:
    """Another ending is refused."""
    (tmp_path / "a.csv").write_text(AZURE)
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, MOONCAKE)) + "\n\n")
    assert len(list(read_trace(tmp_path / "a.csv"))) == 2
    assert len(list(read_trace(tmp_path / "a.jsonl"))) == 3
    with pytest.raises(ValueError, match="jsonl"):
        list(read_trace(tmp_path / "a.txt"))

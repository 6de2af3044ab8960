"""NVIDIA's perf_analyzer as a witness: its profile is read into the same figures, and differences are marked."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from loadtest.nvidia import WARM_UP_S, compare, read_profile, write_arguments
from loadtest.result import Load, Measures

OPEN = Load("open", 10)
TTFT_S, GAP_S = 0.2, 0.1


def write_profile(path: Path, slower: float = 1.0) -> Path:
    """A hundred requests, ten a second, of three tokens each and an empty final response."""
    requests = []
    for at in range(100):
        begin = 1_000_000_000 * 10**9 + at * 10**8
        moments = [TTFT_S, TTFT_S + GAP_S * slower, TTFT_S + 2 * GAP_S * slower, TTFT_S + 2 * GAP_S * slower + 0.001]
        requests.append({"timestamp": begin, "response_timestamps": [begin + round(moment * 1e9) for moment in moments]})
    path.write_text(json.dumps({"experiments": [{"requests": requests}]}))
    return path


def read(path: Path, slower: float = 1.0) -> Measures:
    return read_profile(write_profile(path / "out.json", slower), OPEN)


def test_a_profile_is_measured_as_a_run(tmp_path: Path) -> None:
    """The warm-up is cut off, the final response is no token."""
    told = read(tmp_path)
    assert told.seconds == pytest.approx(9.9 - WARM_UP_S)
    assert told.completed_per_s == pytest.approx(10, rel=0.02)
    assert told.tokens_out_per_s == pytest.approx(30, rel=0.02)
    assert (told.ttft.p50, told.itl.p50, told.e2e.p50) == pytest.approx((0.2, 0.1, 0.4))


def test_what_differs_is_marked(tmp_path: Path) -> None:
    """By more than 5 % and by more than a few milliseconds; the same is not."""
    same, slower = read(tmp_path), read(tmp_path, slower=1.2)
    assert [mark for *_, mark in compare(OPEN, [same], [same]) if mark] == []
    marked = {name for name, *_, mark in compare(OPEN, [same], [same, slower, slower]) if mark}
    assert marked == {"inter-token p50 ms", "inter-token p99 ms", "end to end p50 ms"}


def test_the_same_load_is_asked_for(tmp_path: Path) -> None:
    """An evenly spaced open loop or callers; the input is beside the output."""
    assert "--request-distribution constant --request-rate-range 10" in " ".join(write_arguments("h:1", OPEN, tmp_path))
    assert "--concurrency-range 32" in " ".join(write_arguments("h:1", Load("closed", 32), tmp_path))
    assert json.loads((tmp_path / "in.json").read_text())["data"][0]["request_output_len"]["shape"] == [1]

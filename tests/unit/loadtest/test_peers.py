"""The comparison with other gateways: the mock behind them, their commands, the table."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from loadtest.mocks.openai_mock import MODELS, run_mock
from loadtest.peers import PEERS, Peer, PeerFailed, Place
from loadtest.record import Outcome, Record
from loadtest.result import Load
from loadtest.router_tax import tax_table
from loadtest.targets.openai import OpenAIOptions, OpenAITarget
from rich.console import Console

from tests.unit.loadtest.fakes import make_request
from tests.unit.loadtest.test_result import make_run


async def test_the_mock_brings_tokens_in_bursts() -> None:
    """Two answers under way get their tokens in the same steps, and the usage is right."""
    async with run_mock(0.02) as (_, port), OpenAITarget.open(OpenAIOptions(f"http://127.0.0.1:{port}", "mock")) as target:
        record = Record(0, "", 0.0)
        await target.run(make_request(tokens=5), record)
    assert (record.outcome, len(record.arrivals)) == (Outcome.COMPLETED, 5)
    assert record.usage is not None
    assert (record.usage.prompt, record.usage.completion) == (2, 5)


def test_the_mock_answers_health_checks() -> None:
    """With something that is a model list too."""
    assert json.loads(MODELS.partition(b"\r\n\r\n")[2])["data"][0]["id"] == "mock"


@pytest.mark.parametrize("peer", PEERS, ids=lambda peer: peer.name)
def test_peers_are_told_their_upstream_and_port(peer: Peer, tmp_path: Path) -> None:
    """On the command line or in a file that it names."""
    arguments = peer.arguments(Place("http://127.0.0.1:9", 8123, tmp_path, "sk-1"))
    told = " ".join(arguments) + "".join(path.read_text() for path in tmp_path.iterdir())
    assert "http://127.0.0.1:9" in told
    assert "8123" in told


async def test_a_peer_that_ends_is_told(tmp_path: Path) -> None:
    """Rather than waited for."""
    broken = Peer("broken", "", lambda place: ("-c", "raise SystemExit(3)"), home=tmp_path)
    binary = tmp_path / "broken/bin/broken"
    binary.parent.mkdir(parents=True)
    binary.symlink_to(sys.executable)
    with pytest.raises(PeerFailed, match="broken ended with code 3"):
        async with broken.run("http://127.0.0.1:9"):
            pass


def test_the_table_counts_from_the_first_line_of_each_group() -> None:
    """Added times and ratios."""
    direct, router = make_run(Load("open", 20), 0.01), make_run(Load("open", 20), 0.02)
    console = Console(width=220, record=True, file=None)
    with console.capture() as capture:
        console.print(tax_table([[("direct", direct), ("router", router)]]))
    assert "+40.0" in capture.get()

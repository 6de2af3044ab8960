"""`tidegate up`, as far as it goes without Triton."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from server.up import main


@pytest.mark.parametrize("option", ["--port", "--http-port", "--metrics-port"])
def test_a_port_that_is_taken_is_named_before_anything_is_started(option: str, capfd: pytest.CaptureFixture[str]) -> None:
    """As when a second one is started by mistake: nobody waits for a model first. Here there is none, which would be told next."""
    ports = {"--port": "0", "--http-port": "0", "--metrics-port": "0"}
    with socket.create_server(("127.0.0.1", 0)) as taken:
        ports[option] = str(taken.getsockname()[1])
        assert main(["--model", "none", *(word for pair in ports.items() for word in pair)]) == 1
    words = capfd.readouterr().err
    assert f"127.0.0.1:{ports[option]} cannot be used" in words
    assert words.endswith(f"with {option}\n")


def test_a_store_that_cannot_be_made_is_named_with_its_option(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """A file is in its way."""
    (tmp_path / "file").touch()
    assert main(["--model", "none", "--port", "0", "--http-port", "0", "--metrics-port", "0", "--store", f"{tmp_path}/file/store"]) == 1
    assert "choose another folder with --store" in capfd.readouterr().err

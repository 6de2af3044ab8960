"""`tidegate up`, as far as it goes without Triton."""

from __future__ import annotations

import socket

import pytest

from server.up import main


@pytest.mark.parametrize("option", ["--port", "--http-port", "--metrics-port"])
def test_a_port_that_is_taken_is_named_before_anything_is_started(option: str, capfd: pytest.CaptureFixture[str]) -> None:
    """As when a second one is started by mistake: nobody waits for a model first. Here there is none, which would be told next."""
    ports = {"--port": "0", "--http-port": "0", "--metrics-port": "0"}
    with socket.create_server(("127.0.0.1", 0)) as taken:
        ports[option] = str(taken.getsockname()[1])
        assert main(["--model", "none", *(word for pair in ports.items() for word in pair)]) == 1
    assert f"127.0.0.1:{ports[option]} cannot be used" in capfd.readouterr().err

"""Which ports of Triton may be open to whom."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from server.exposure import ExposureInvalid, MutualTls, add_arguments, build_exposure, read_tls

TLS = ["--tls-certificate=c", "--tls-key=k", "--tls-client-ca=a"]
CREDENTIAL = ["--lane-credential=l"]


def parse(*argv: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    return parser.parse_args(argv)


@pytest.mark.parametrize("given", [(), TLS, CREDENTIAL])
def test_ports_off_loopback_want_certificates_and_a_credential(given: list[str]) -> None:
    """One of the two does not do; on loopback neither is needed, nor where the network is said to be safe."""
    with pytest.raises(ExposureInvalid, match="--plaintext-anywhere"):
        read_tls(parse("--host=0.0.0.0", *given))
    assert read_tls(parse("--host=0.0.0.0", *TLS, *CREDENTIAL)) == MutualTls(Path("c"), Path("k"), Path("a"))
    assert read_tls(parse("--host=0.0.0.0", "--plaintext-anywhere")) is None
    assert read_tls(parse("--host=::1")) is None


@pytest.mark.parametrize("missing", range(3))
def test_tls_is_whole_or_not_there(missing: int) -> None:
    """A certificate without its key would be no error of Triton's until it starts."""
    with pytest.raises(ExposureInvalid, match="go together"):
        read_tls(parse(*(it for at, it in enumerate(TLS) if at != missing)))


def test_what_is_closed_differs_with_each_start() -> None:
    """So the value that would open it is nowhere to be read beforehand."""
    assert set(build_exposure(None)).isdisjoint(build_exposure(None))

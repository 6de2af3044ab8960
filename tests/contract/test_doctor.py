"""`tidegate doctor`: a line for each thing that a router stands on, and a code that tells whether all of it holds."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from router.config import Config, read_config
from router.doctor import examine, main
from router.store.database import Database
from router.store.peppers import claim_peppers
from tests.bench.authority import Authority
from tests.bench.postgres import migrated_database
from tests.bench.router import values_of
from tests.bench.worker import Worker
from tests.unit.router.quota.redis_server import RedisServer


async def told(config: Config) -> dict[str, tuple[bool, str]]:
    """Each finding, by what it is of."""
    return {it.subject.split(" ")[0]: (it.holds, it.words) async for it in examine(config)}


async def test_what_holds_is_told_in_a_line_each(chatml: Path, tmp_path: Path, server: RedisServer) -> None:
    """Model, worker, pepper, database, clock, Redis and certificates."""
    authority = Authority(tmp_path / "authority")
    authority.issue("server", "IP:127.0.0.1")
    async with Worker(chatml).running() as worker, migrated_database() as dsn:
        store, quota = {"dsn": dsn, "folder": str(tmp_path)}, {"redis": server.url}
        values = values_of(chatml, worker.address, store=store, quota=quota, tls=authority.section())
        found = await told(read_config(values))
    assert {subject for subject, (holds, _) in found.items() if not holds} == set()
    assert set(found) == {"model", "worker", "pepper", "database", "clock", "Redis", "certificate"}


async def test_what_does_not_hold_says_what_to_do(chatml: Path, tmp_path: Path) -> None:
    """A worker that is not there, keys under another pepper, a Redis that is away, a certificate that has expired."""
    tls = {"certificate": str(write_expired(tmp_path)), "key": "/nowhere"}
    async with migrated_database() as dsn:
        async with Database(dsn).running() as database:
            await claim_peppers(database, ["0123456789abcdef"])
        store, quota = {"dsn": dsn, "folder": str(tmp_path)}, {"redis": "redis://127.0.0.1:1"}
        found = await told(read_config(values_of(chatml, "127.0.0.1:1", store=store, quota=quota, tls=tls)))
    assert {subject for subject, (holds, _) in found.items() if not holds} == {"worker", "database", "Redis", "certificate"}
    assert "TIDEGATE_KEY_PEPPER" in found["database"][1]
    assert "expired" in found["certificate"][1]


def test_the_command_tells_by_its_code(chatml: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Whether something is to be mended, or the configuration cannot even be read."""
    config = tmp_path / "router.toml"
    config.write_text(
        f'[[models]]\nname = "test"\npath = {json.dumps(str(chatml))}\nworkers = ["127.0.0.1:1"]\n[store]\nfolder = "{tmp_path}"\n'
    )
    assert main([str(config)]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert [line[:6] for line in lines] == ["ok    ", "FAILED", "ok    ", "1 of t"]
    config.write_text("lisen = 1\n")
    assert main([str(config)]) == 2
    assert "lisen" in capsys.readouterr().err


def write_expired(folder: Path) -> Path:
    """A certificate of long ago."""
    key, name = ec.generate_private_key(ec.SECP256R1()), x509.Name([])
    begin, end = datetime(2020, 1, 1, tzinfo=UTC), datetime(2020, 2, 1, tzinfo=UTC)
    builder = x509.CertificateBuilder(name, name, key.public_key(), 1, begin, end)
    path = folder / "expired.pem"
    path.write_bytes(builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))
    return path

"""A router that cannot do its work does not start, and says why in one line."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pytest

from router.__main__ import main
from router.app import build
from router.config import ConfigInvalid, load_config, read_config
from router.errors import StartFailed
from router.first_key import make_operator_key
from tests.bench.postgres import migrated_database
from tests.bench.router import own_store, run_router, values_of


def write_config(folder: Path, **values: str) -> Path:
    """A configuration file with one model."""
    given = {"listen": "127.0.0.1:0", "path": "/nowhere", "workers": '["127.0.0.1:1"]', "extra": ""} | values
    text = '{extra}\nlisten = "{listen}"\n[[models]]\nname = "test"\npath = "{path}"\nworkers = {workers}\n'
    path = folder / "router.toml"
    path.write_text(text.format(**given))
    return path


def test_without_its_tokenizer_a_router_does_not_start(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """A model folder that does not exist ends the process with a code and a line that names the key, not with random routing."""
    assert main([str(write_config(tmp_path))]) == 2
    assert "models.path" in capfd.readouterr().err


def test_a_broken_tokenizer_is_named(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """A tokenizer.json that is no JSON ends the process in the same way."""
    (tmp_path / "tokenizer.json").write_text("{")
    assert main([str(write_config(tmp_path, path=str(tmp_path)))]) == 2
    assert "models.path" in capfd.readouterr().err


@pytest.mark.parametrize(("values", "key"), [({"extra": "max_token = 8"}, "max_token"), ({"workers": "[]"}, "workers")])
def test_a_configuration_that_is_not_understood_is_refused(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], values: dict[str, str], key: str
) -> None:
    """A key that does not exist, or a value that makes no sense, is an error with its path; nothing is ignored in silence."""
    assert main([str(write_config(tmp_path, **values))]) == 2
    assert key in capfd.readouterr().err


async def test_a_second_router_on_the_same_port_does_not_start(chatml: Path, tmp_path: Path) -> None:
    """Two routers cannot share a port by accident."""
    async with run_router(chatml, wait_up=False) as router:
        second = build(read_config(values_of(chatml, store={"folder": str(tmp_path)}) | {"listen": router.target}))
        with pytest.raises(ConfigInvalid, match="listen"):
            async with second.running():
                pass


@pytest.mark.parametrize("section", ["telemetry", "http"])
async def test_a_port_that_is_taken_is_named(chatml: Path, section: str) -> None:
    """Of metrics and HTTP too: no traceback."""
    key = {"telemetry": "metrics_listen", "http": "listen"}[section]
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        async with own_store({}) as store:
            sections: dict[str, Any] = {"store": store, section: {key: address}}
            router = build(read_config(values_of(chatml, **sections)))
            with pytest.raises(ConfigInvalid, match=f"{section}.{key}: cannot bind {address}"):
                async with router.running():
                    pass


@pytest.mark.parametrize("section", [{"quota": {"redis": "canary"}}, {"store": {"dsn": "postgres:/u:canary@host/db"}}])
async def test_an_address_that_is_none_is_refused_without_its_secret(
    chatml: Path, tmp_path: Path, section: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    """Before anything connects; what is wrong in it may be a password, so neither message nor log holds it."""
    section = {"store": {}} | section
    section["store"]["folder"] = str(tmp_path)
    with pytest.raises(ConfigInvalid, match="must be a URL") as invalid:
        build(read_config(values_of(chatml, **section)))
    assert "canary" not in str(invalid.value) + caplog.text


def test_a_key_for_nobody_is_refused(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """As where a variable that should name the user is not set; no router is started instead."""
    assert main([str(write_config(tmp_path)), "--new-operator-key", ""]) == 2
    assert "--new-operator-key" in capfd.readouterr().err


async def test_a_second_router_that_counts_alone_does_not_start(chatml: Path, tmp_path: Path) -> None:
    """Two routers on one database that share no Redis would let twice the limits through."""
    async with migrated_database() as dsn, run_router(chatml, wait_up=False, store={"dsn": dsn}):
        second = build(read_config(values_of(chatml, store={"folder": str(tmp_path), "dsn": dsn})))
        with pytest.raises(StartFailed, match=r"quota\.redis"):
            async with second.running():
                pass


async def test_two_routers_do_not_share_a_folder(chatml: Path) -> None:
    """What one has spooled the other must not touch."""
    async with migrated_database() as dsn, run_router(chatml, wait_up=False) as router:
        folder = str(router.app.config.store.folder)
        second = build(read_config(values_of(chatml, store={"folder": folder, "dsn": dsn})))
        with pytest.raises(StartFailed, match=folder):
            async with second.running():
                pass


@pytest.mark.parametrize("section", [{"store": {"dsn": "host=127.0.0.1 port=1"}}, {"quota": {"redis": "redis://127.0.0.1:1"}}])
async def test_what_cannot_be_reached_is_named(chatml: Path, tmp_path: Path, section: dict[str, Any]) -> None:
    """A router without its database, or without the Redis it was told to share, does not start."""
    section = {"store": {}} | section
    section["store"]["folder"] = str(tmp_path)
    with pytest.raises(StartFailed, match=r"cannot be reached|Redis"):
        async with build(read_config(values_of(chatml, **section))).running():
            pass


@pytest.mark.parametrize(
    ("values", "key"),
    [
        ({"listen": "0.0.0.0:8500"}, "listen"),
        ({"listen": "0.0.0.0:8500", "plaintext_anywhere": True, "auth": {"anonymous": True}}, "auth.anonymous"),
        ({"quota": {"routers": 2}}, "quota.redis"),
        ({"models": [{"name": "test", "path": "/", "workers": ["127.0.0.1:1", "a:1"]}]}, "worker_link.ca"),
        ({"worker_link": {"certificate": "/c", "key": "/k"}}, "worker_link"),
        ({"worker_link": {"ca": "/ca", "key": "/k"}}, "worker_link"),
    ],
)
def test_what_is_not_safe_is_refused(values: dict[str, Any], key: str) -> None:
    """Plaintext on other than loopback, by callers or towards workers, callers without credentials there, routers that count apart."""
    with pytest.raises(ConfigInvalid, match=key):
        read_config({"models": [{"name": "test", "path": "/", "workers": ["127.0.0.1:1"]}], **values})


def test_secrets_are_not_printed(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """`--print-config` masks those of the file, and a configuration masks those of the environment."""
    path = write_config(tmp_path)
    path.write_text(path.read_text() + '[quota]\nredis = "redis://:canary-1@host"\n')
    assert main([str(path), "--print-config"]) == 0
    config = load_config(path, {"TIDEGATE_DSN": "postgresql://u:canary-2@host/db"})
    assert config.store.dsn.get_secret_value() == "postgresql://u:canary-2@host/db"
    assert "canary" not in capfd.readouterr().out + config.model_dump_json() + repr(config)


async def test_a_router_with_another_pepper_does_not_start(chatml: Path, tmp_path: Path) -> None:
    """Beside a router, or to make a key that it would refuse: the line says what to set."""
    async with migrated_database() as dsn:
        routers = []
        for name in ("one", "two"):
            (tmp_path / name).mkdir()
            routers.append(read_config(values_of(chatml, store={"folder": str(tmp_path / name), "dsn": dsn})))
        async with build(routers[0]).running():
            pass
        with pytest.raises(StartFailed, match="TIDEGATE_KEY_PEPPER"):
            async with build(routers[1]).running():
                pass
        with pytest.raises(StartFailed, match="TIDEGATE_KEY_PEPPER"):
            await make_operator_key(routers[1], "alice")

"""A router that cannot do its work does not start, and says why in one line."""

from __future__ import annotations

from pathlib import Path

import pytest

from router.__main__ import main
from router.app import build
from router.config import ConfigInvalid, read_config
from tests.bench.router import run_router


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


async def test_a_second_router_on_the_same_port_does_not_start(chatml: Path) -> None:
    """Two routers cannot share a port by accident."""
    async with run_router(chatml, wait_up=False) as router:
        model = {"name": "test", "path": str(chatml), "workers": ["127.0.0.1:1"]}
        second = build(read_config({"listen": router.target, "models": [model]}))
        with pytest.raises(ConfigInvalid, match="listen"):
            async with second.running():
                pass

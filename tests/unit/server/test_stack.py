"""What `tidegate up` hands to the router."""

from __future__ import annotations

from pathlib import Path

from router.config import load_config
from server.stack import StackOptions, router_config


def test_a_folder_may_have_any_name(tmp_path: Path) -> None:
    """Quotes, backslashes, control characters and letters outside ASCII arrive at the router as they are."""
    odd = tmp_path / 'a "quoted\\" \n\x7f\x01 größe 🌊'
    file = tmp_path / "router.toml"
    file.write_text(router_config(StackOptions(), odd, "127.0.0.1:1", "http://127.0.0.1:2", f"{odd}/store"), encoding="utf-8")
    config = load_config(file)
    assert (config.models[0].path, config.store.folder) == (odd, odd / "store")
    assert config.models[0].name == "a-quoted-gr-e-"

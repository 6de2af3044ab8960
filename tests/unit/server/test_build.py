"""Rendering the model repository: filled, escaped, whole or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest
from google.protobuf import text_format
from hypothesis import given
from hypothesis import strategies as st
from tritonclient.grpc import model_config_pb2

from server.build import TEMPLATE, UnknownValue, fill_placeholders, find_placeholders, render_repository

CONFIG = """\
# `${name}` is filled by us.
name: "tiny"
parameters { key: "model_dir" value: { string_value: "${model_dir}" } }
parameters { key: "profile" value: { string_value: "${profile}" } }
"""


@pytest.fixture
def template(tmp_path: Path) -> Path:
    version = tmp_path / "template" / "tiny" / "1"
    (version / "__pycache__").mkdir(parents=True)
    (version / "model.py").write_text("TEXT = '${profile}'\n")
    (version.parent / "config.pbtxt").write_text(CONFIG)
    return tmp_path / "template"


def parse_parameters(config: str) -> dict[str, str]:
    parsed = text_format.Parse(config, model_config_pb2.ModelConfig())
    return {key: parameter.string_value for key, parameter in parsed.parameters.items()}


def test_values_are_filled_in(template: Path, tmp_path: Path) -> None:
    """A placeholder with a value becomes the value; one without stays, which readers count as unset."""
    target = render_repository(template, tmp_path / "run", {"model_dir": "/models/a"})
    config = (target / "tiny" / "config.pbtxt").read_text()
    assert parse_parameters(config) == {"model_dir": "/models/a", "profile": "${profile}"}


def test_only_configurations_are_filled(template: Path, tmp_path: Path) -> None:
    """Code is copied as it is, and compiled code is left behind."""
    target = render_repository(template, tmp_path / "run", {"profile": "fast"})
    assert [path.name for path in (target / "tiny" / "1").iterdir()] == ["model.py"]
    assert (target / "tiny" / "1" / "model.py").read_text() == "TEXT = '${profile}'\n"


def test_the_template_is_not_changed(template: Path, tmp_path: Path) -> None:
    """Rendering writes to the copy."""
    render_repository(template, tmp_path / "run", {"profile": "fast"})
    assert (template / "tiny" / "config.pbtxt").read_text() == CONFIG


@given(value=st.text(st.characters(exclude_categories=["Cs"])))
def test_any_text_survives(value: str) -> None:
    """Triton reads the very value that was given, whatever characters it has."""
    assert parse_parameters(fill_placeholders(CONFIG, {"model_dir": value}))["model_dir"] == value


def test_a_value_is_not_filled_in_again(template: Path, tmp_path: Path) -> None:
    """A value that looks like a placeholder is taken as it is."""
    target = render_repository(template, tmp_path / "run", {"model_dir": "${profile}", "profile": "fast"})
    assert parse_parameters((target / "tiny" / "config.pbtxt").read_text())["model_dir"] == "${profile}"


def test_unknown_value_lists_the_known_ones(template: Path, tmp_path: Path) -> None:
    """A misspelt name is refused, with the names there are, and nothing is written."""
    with pytest.raises(UnknownValue, match=r"unknown value 'modeldir'; the templates know model_dir, profile$"):
        render_repository(template, tmp_path / "run", {"modeldir": "/models/a"})
    assert not (tmp_path / "run").exists()


def test_existing_folder_is_refused(template: Path, tmp_path: Path) -> None:
    """A folder that is there already may belong to a running server and is left alone."""
    (tmp_path / "run").mkdir()
    with pytest.raises(FileExistsError, match="rendered into a new folder"):
        render_repository(template, tmp_path / "run", {})
    assert list((tmp_path / "run").iterdir()) == []


def test_our_repository_has_the_names_that_serve_fills() -> None:
    """What `tidegate serve` sets by itself has a place in the repository that it renders by default."""
    assert {"model_dir", "profile", "otlp_url"} <= find_placeholders(TEMPLATE)

"""The configuration file: what is given, what is defaulted, and how faults are told."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from router import config as config_module
from router.config import Config, ConfigInvalid, load_config, read_config
from router.model_config import follow_smaller

MODEL = {"name": "small", "path": "/models/small", "workers": ["127.0.0.1:8001"]}
MINIMAL: dict[str, Any] = {"models": [MODEL]}


def write(folder: Path, text: str | bytes) -> Path:
    path = folder / "router.toml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def test_one_model_is_enough() -> None:
    """Everything else has a default."""
    config = read_config(MINIMAL)
    assert config.listen == "127.0.0.1:8500"
    assert config.models[0].path == Path("/models/small")
    assert config.models[0].workers == ("127.0.0.1:8001",)
    assert config.models[0].default_output_tokens == 512
    assert config.telemetry.otlp_endpoint == ""


def test_folders_may_be_below_the_home_folder() -> None:
    """`~` is that, of a model too."""
    config = read_config({"models": [{**MODEL, "path": "~/small"}], "store": {"folder": "~/store"}})
    assert [config.models[0].path, config.store.folder] == [Path.home() / "small", Path.home() / "store"]


def test_the_example_in_the_docstring_is_a_valid_file(tmp_path: Path) -> None:
    """What the module shows can be copied."""
    assert config_module.__doc__ is not None
    _, _, example = config_module.__doc__.partition("\n\n")
    assert load_config(write(tmp_path, example)).models[0].name == "smollm2-135m"


def test_sections_are_read(tmp_path: Path) -> None:
    """A TOML file with every section gives its values; what a section leaves out keeps its default."""
    text = """
    listen = "0.0.0.0:9000"
    plaintext_anywhere = true
    [[models]]
    name = "small"
    path = "/models/small"
    workers = ["a:1", "b:1"]
    default_output_tokens = 16
    [worker_link]
    ca = "/etc/tidegate/workers.pem"
    [limits]
    max_stops = 4
    [timeouts]
    idle_s = 2
    [telemetry]
    otlp_endpoint = "http://127.0.0.1:4318/v1/traces"
    sample_ratio = 0.5
    """
    config = load_config(write(tmp_path, text))
    assert config.models[0].workers == ("a:1", "b:1")
    assert (config.limits.max_stops, config.limits.max_messages) == (4, 1024)
    assert (config.timeouts.idle_s, config.timeouts.first_token_s) == (2.0, 60.0)
    assert config.telemetry.sample_ratio == 0.5


@pytest.mark.parametrize(
    ("values", "path"),
    [
        ({}, "models"),
        ({"models": []}, "models"),
        ({**MINIMAL, "lisen": "x"}, "lisen"),
        ({**MINIMAL, "limits": {"max_stop": 1}}, "limits.max_stop"),
        ({**MINIMAL, "limits": {"max_stops": 0}}, "limits.max_stops"),
        ({**MINIMAL, "limits": {"max_stops": "many"}}, "limits.max_stops"),
        ({**MINIMAL, "timeouts": {"idle_s": 0}}, "timeouts.idle_s"),
        ({**MINIMAL, "timeouts": {"idle_s": float("nan")}}, "timeouts.idle_s"),
        ({**MINIMAL, "telemetry": {"sample_ratio": 1.5}}, "telemetry.sample_ratio"),
        ({**MINIMAL, "telemetry": {"otlp_protocol": "udp"}}, "telemetry.otlp_protocol"),
        ({"models": [MODEL, {**MODEL, "name": "other", "workers": []}]}, "models.1"),
        ({"models": [{**MODEL, "discovery": {"dns": "workers:8001"}}]}, "models.0"),
        ({"models": [{**MODEL, "workers": [], "discovery": {"dns": "workers"}}]}, "models.0.discovery.dns"),
        ({"models": [{**MODEL, "workers": [], "discovery": {"dns": "workers:1", "file": "f"}}]}, "models.0.discovery"),
        ({"models": [{**MODEL, "name": "a b"}]}, "models.0.name"),
        ({"models": [{"name": "small", "workers": ["a:1"]}]}, "models.0.path"),
        ({"models": [{**MODEL, "workers": ["127.0.0.1"]}]}, "models.0.workers.0"),
        ({**MINIMAL, "listen": "8500"}, "listen"),
        ({**MINIMAL, "listen": "127.0.0.1:99999"}, "listen"),
        ({**MINIMAL, "telemetry": {"metrics_listen": "9090"}}, "telemetry.metrics_listen"),
        ({**MINIMAL, "http": {"listen": "127.0.0.1"}}, "http.listen"),
    ],
)
def test_a_fault_is_told_with_its_path(values: dict[str, Any], path: str) -> None:
    """An unknown key, a missing one and a wrong value name the key they concern."""
    with pytest.raises(ConfigInvalid, match=f"^{re.escape(path)}: "):
        read_config(values)


def test_each_fault_has_its_line() -> None:
    """All of them are told at once."""
    with pytest.raises(ConfigInvalid) as invalid:
        read_config({**MINIMAL, "lisen": "x", "limits": {"max_stops": 0}})
    assert sorted(line.partition(":")[0] for line in str(invalid.value).splitlines()) == ["limits.max_stops", "lisen"]


def test_faults_are_told_in_words_for_whoever_wrote_the_file() -> None:
    """Not in those of the library that checks, and a list is not called too short because what is in it is wrong."""
    with pytest.raises(ConfigInvalid) as invalid:
        read_config({"models": [{"name": "small", "worker": ["a:1"], "workers": ["a"]}], "aliases": [{"name": "x"}]})
    assert str(invalid.value).splitlines() == [
        "models.0.path: must be given",
        "models.0.workers.0: must be host:port, not 'a'",
        "models.0.worker: there is no such key",
        "aliases.0.models: must be given",
    ]


def test_two_models_of_one_name_are_refused() -> None:
    """Callers could not tell which they get."""
    with pytest.raises(ConfigInvalid, match=r"models: .*two models have the same name"):
        read_config({"models": [MODEL, MODEL]})


def test_two_issuers_of_one_url_are_refused() -> None:
    """Tokens of which one would be taken could not be told."""
    issuer = {"url": "https://id.example", "audience": "a", "algorithm": "RS256"}
    with pytest.raises(ConfigInvalid, match=r"auth: .*two issuers have the same url"):
        read_config({**MINIMAL, "auth": {"issuers": [issuer, {**issuer, "audience": "b"}]}})


LARGE = {**MODEL, "name": "large", "smaller": "small"}


@pytest.mark.parametrize(
    ("values", "fault"),
    [
        ({"models": [{**MODEL, "smaller": "none"}]}, "models: the smaller model of small is not one of the models"),
        ({"models": [{**MODEL, "smaller": "small"}]}, "models: small is smaller than itself"),
        ({"models": [LARGE, {**MODEL, "smaller": "large"}]}, "models: large is smaller than itself"),
        ({"models": [{**LARGE, "name": "x"}, LARGE, {**MODEL, "smaller": "large"}]}, "models: large is smaller than itself"),
        ({"models": [MODEL, LARGE], "aliases": [{"name": "large", "models": ["small"]}]}, "aliases: an alias has the name of a model"),
        (
            {"models": [MODEL], "aliases": [{"name": "a", "models": ["small"]}] * 2},
            "aliases: an alias has the name of a model or of another",
        ),
        ({"models": [MODEL], "aliases": [{"name": "auto", "models": ["small", "none"]}]}, "aliases: auto must name models, each once"),
        ({"models": [MODEL], "aliases": [{"name": "auto", "models": ["small", "small"]}]}, "aliases: auto must name models, each once"),
    ],
)
def test_models_must_stand_to_each_other_in_order(values: dict[str, Any], fault: str) -> None:
    """Names are there and unlike, and from every model the way down ends."""
    with pytest.raises(ConfigInvalid, match=fault):
        read_config(values)


def test_smaller_models_and_aliases_are_read() -> None:
    """A model may be the smaller one of several, and stand in several aliases; the way down leads over all of them."""
    models = [MODEL, LARGE, {**MODEL, "name": "huge", "smaller": "large", "slo_ttft_s": 0.5}, {**LARGE, "name": "other"}]
    aliases = [{"name": "auto", "models": ["small", "large", "huge"]}, {"name": "cheap", "models": ["small"]}]
    config = read_config({"models": models, "aliases": aliases})
    assert config.models[2].slo_ttft_s == 0.5
    assert config.aliases[0].models == ("small", "large", "huge")
    assert list(follow_smaller({model.name: model.smaller for model in config.models}, "huge")) == ["large", "small"]


@pytest.mark.parametrize("text", ["listen = ", b"\xff\xfe"])
def test_a_file_that_is_no_toml_is_named(tmp_path: Path, text: str | bytes) -> None:
    """The error begins with the file's path."""
    path = write(tmp_path, text)
    with pytest.raises(ConfigInvalid, match=f"^{re.escape(str(path))}: "):
        load_config(path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    """No traceback for a wrong argument."""
    with pytest.raises(ConfigInvalid, match=r"none\.toml: No such file"):
        load_config(tmp_path / "none.toml")


def test_a_configuration_does_not_change() -> None:
    """Components share it."""
    with pytest.raises(ValueError, match="frozen"):
        read_config(MINIMAL).listen = "elsewhere"


def test_a_printed_configuration_can_be_read_back() -> None:
    """`--print-config` shows what is in force."""
    config = read_config(MINIMAL)
    assert Config.model_validate_json(config.model_dump_json()) == config


@pytest.mark.parametrize("listen", ["", "127.0.0.1:8502", "[::1]:8502", "localhost:8502"])
def test_the_http_port_may_be_open_to_this_machine(listen: str) -> None:
    """Without encryption and without credentials."""
    assert read_config({**MINIMAL, "http": {"listen": listen}, "auth": {"anonymous": True}}).http.listen == listen


@pytest.mark.parametrize(("more", "fault"), [({}, "needs"), ({"plaintext_anywhere": True, "auth": {"anonymous": True}}, "auth.anonymous")])
def test_the_http_port_is_as_guarded_as_the_other(more: dict[str, Any], fault: str) -> None:
    """To other machines it is encrypted, or said to be safe, and it never lets everybody in."""
    with pytest.raises(ConfigInvalid, match=fault):
        read_config({**MINIMAL, "http": {"listen": "0.0.0.0:8502"}, **more})

"""Configuration: one TOML file, checked strictly. An unknown key is an error that names its path.

listen = "127.0.0.1:8500"

[[models]]
name = "smollm2-135m"
path = "/var/lib/tidegate/smollm2-135m"     # tokenizer.json and friends
workers = ["127.0.0.1:8001"]                # Triton gRPC addresses
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

Count = Annotated[int, Field(ge=1, strict=True)]
Seconds = Annotated[float, Field(gt=0, strict=True)]


class ConfigInvalid(ValueError):
    """The configuration cannot be used; one line for each fault, with the key's path."""


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class ModelConfig(_Section):
    """A model that callers may name."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9._/-]{1,128}$")]
    path: Path
    """Folder with the tokenizer and chat template, in Hugging Face layout."""
    workers: Annotated[tuple[str, ...], Field(min_length=1)]
    """Triton gRPC addresses, host:port."""
    default_output_tokens: Count = 512
    """Most tokens of an answer whose caller sets no limit."""


class Limits(_Section):
    """What one caller may ask."""

    max_message_bytes: Count = 4 * 1024 * 1024
    max_messages: Count = 1024
    max_stops: Count = 16
    max_stop_chars: Count = 256
    max_guide_chars: Count = 64 * 1024
    max_turns_per_stream: Count = 1024
    max_streams: Count = 10_000


class Timeouts(_Section):
    """How long the router waits, in seconds."""

    first_token_s: Seconds = 60.0
    """From submitting a turn to its first token."""
    idle_s: Seconds = 30.0
    """Between two tokens of a turn."""
    worker_silence_s: Seconds = 10.0
    """A worker sends a frame each second even when idle; after this long without one its lane is given up."""
    slow_reader_s: Seconds = 30.0
    """A caller that takes no event for this long loses its stream."""
    heartbeat_s: Seconds = 15.0
    """A stream without events gets a heartbeat this often."""
    drain_s: Seconds = 30.0
    """Time running turns have when the router shuts down."""


class Telemetry(_Section):
    """Where spans and metrics go."""

    otlp_endpoint: str = ""
    """OTLP traces endpoint, as http://127.0.0.1:4318/v1/traces. Empty: no spans."""
    otlp_protocol: Literal["http/protobuf", "grpc"] = "http/protobuf"
    sample_ratio: Annotated[float, Field(ge=0, le=1)] = 1.0
    """Share of the traces begun here that are recorded; a caller's own decision is kept."""
    metrics_listen: str = ""
    """host:port of Prometheus' /metrics. Empty: none."""


class Config(_Section):
    """The whole file."""

    listen: str = "127.0.0.1:8500"
    models: Annotated[tuple[ModelConfig, ...], Field(min_length=1)]
    """The first is the default model."""
    limits: Limits = Limits()
    timeouts: Timeouts = Timeouts()
    telemetry: Telemetry = Telemetry()

    @field_validator("models")
    @classmethod
    def _names_differ(cls, models: tuple[ModelConfig, ...]) -> tuple[ModelConfig, ...]:
        names = [model.name for model in models]
        if len(set(names)) < len(names):
            raise ValueError("two models have the same name")
        return models


def load_config(path: Path) -> Config:
    """Reads a TOML file. Raises ConfigInvalid."""
    try:
        values = tomllib.loads(path.read_text())
    except OSError as error:
        raise ConfigInvalid(f"{path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigInvalid(f"{path}: {error}") from error
    return read_config(values)


def read_config(values: dict[str, Any]) -> Config:
    """A configuration from plain values. Raises ConfigInvalid."""
    try:
        return Config.model_validate(values)
    except ValidationError as error:
        faults = (f"{'.'.join(map(str, fault['loc']))}: {fault['msg']}" for fault in error.errors())
        raise ConfigInvalid("\n".join(faults)) from error

"""Configuration: one TOML file, checked strictly. An unknown key is an error that names its path. Secrets may come from the environment
instead: TIDEGATE_DSN and TIDEGATE_REDIS take the place of `store.dsn` and `quota.redis`.

listen = "127.0.0.1:8500"

[[models]]
name = "smollm2-135m"
path = "/var/lib/tidegate/smollm2-135m"     # tokenizer.json and friends
workers = ["127.0.0.1:8001"]                # Triton gRPC addresses
"""

from __future__ import annotations

import os
import socket
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, SecretStr, ValidationError, model_validator
from pydantic_core import ErrorDetails

from router.auth_config import Auth, Tls
from router.model_config import (
    NEEDS_TLS,
    Alias,
    Count,
    Folder,
    ModelConfig,
    Seconds,
    Section,
    WorkerLink,
    check_address,
    check_models,
    is_loopback,
)

Share = Annotated[float, Field(gt=0, le=1)]

Door = Annotated[str, AfterValidator(lambda text: text and check_address(text))]
"""host:port, or empty for none."""
Listen = Annotated[str, AfterValidator(lambda text: text if text.startswith("unix:") else check_address(text))]

SECRETS = {"TIDEGATE_DSN": ("store", "dsn"), "TIDEGATE_REDIS": ("quota", "redis")}
"""Environment variables and the keys that they take the place of."""


class ConfigInvalid(ValueError):
    """The configuration cannot be used; one line for each fault, with the key's path."""


class Limits(Section):
    """What one caller may ask."""

    max_message_bytes: Count = 4 * 1024 * 1024
    max_messages: Count = 1024
    max_stops: Count = 16
    max_stop_chars: Count = 256
    max_guide_chars: Count = 64 * 1024
    max_turns_per_stream: Count = 1024
    max_streams: Count = 10_000


class Timeouts(Section):
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


class Resume(Section):
    """Streams whose callers may come back after a lost connection."""

    longest_s: Seconds = 60.0
    """Longest time that turns outlive their connection; a caller that asks for more gets this."""
    max_bytes_per_stream: Annotated[int, Field(ge=2 * 1024 * 1024, strict=True)] = 4 * 1024 * 1024
    """Sent frames that are kept for one stream; at least two of the largest."""
    max_streams: Count = 1_000
    """Streams that may be resumed, of all callers; further ones are served and cannot be."""
    lease_s: Seconds = 5.0
    """With several routers: one that has gone keeps its streams for this long."""


class Telemetry(Section):
    """Where spans and metrics go."""

    otlp_endpoint: str = ""
    """OTLP traces endpoint, as http://127.0.0.1:4318/v1/traces. Empty: no spans."""
    otlp_protocol: Literal["http/protobuf", "grpc"] = "http/protobuf"
    sample_ratio: Annotated[float, Field(ge=0, le=1)] = 1.0
    """Share of the traces begun here that are recorded; a caller's own decision is kept."""
    metrics_listen: Door = ""
    """host:port of Prometheus' /metrics. Empty: none."""


class Store(Section):
    """What must survive: tenants, keys, limits and the usage ledger."""

    folder: Folder = Path("~/.local/share/tidegate").expanduser()
    """This router's own: usage that is not in the database yet, the secret that keys are hashed with, and the embedded PostgreSQL."""
    dsn: SecretStr = SecretStr("")
    """A PostgreSQL. Empty: an embedded one, which serves one router."""


class QuotaConfig(Section):
    """Where quotas are counted."""

    redis: SecretStr = SecretStr("")
    """URL of the Redis that all routers share. Empty: in memory, which serves one router."""
    redis_deadline_s: Seconds = 0.1
    """Redis is away for a decision that it has not made by then."""
    redis_away: Literal["refuse", "share"] = "refuse"
    """New turns while Redis is away: refused, or granted by this router's share of the limits."""
    routers: Count = 1
    """Routers that share the database; the share is a limit divided by this."""


class Queue(Section):
    """The queue in front of each model's workers."""

    length: Count = 1024
    tenant_share: Share = 0.5
    """Of the queue's places, at most this share for one tenant."""
    longest_wait_s: Seconds = 120.0
    standard_wait_s: Seconds = 5.0
    """A standard turn that has waited this long competes as if it were an interactive one that has just come."""
    batch_wait_s: Seconds = 60.0
    """The same for batch turns."""


class Routing(Section):
    """Which worker takes a turn."""

    policy: Literal["kv_aware", "round_robin", "least_loaded", "two_choices"] = "kv_aware"
    slow_start_s: Annotated[float, Field(ge=0)] = 30.0
    """A worker that has just come up is given its full share of turns only after this long; none is held back when all are new."""


class Http(Section):
    """The HTTP door: OpenAI's API, the WebSocket, probes. Bodies and messages are bounded by `limits.max_message_bytes`."""

    listen: Door = ""
    """host:port. Empty: no HTTP."""
    max_connections: Count = 10_000
    max_header_bytes: Count = 32 * 1024
    header_s: Seconds = 10.0
    body_s: Seconds = 30.0
    """Time that a request's headers may take, and then its body."""
    keep_alive_s: Count = 75
    """A connection without a request stays open this long: longer than load balancers keep theirs."""
    hold_s: Seconds = 2.0
    """A streamed answer's status is held back until its first content, so that a refusal has a status of its own; at most this long."""
    max_choices: Count = 16  # of one request: `n` times prompts
    metrics: bool = False
    """Shows /metrics to whoever reaches this door, too; on loopback it always does. `telemetry.metrics_listen` is a port of its own."""
    unknown_options: Literal["refuse", "ignore"] = "refuse"
    """What becomes of options of a request that this router does not have; a header of the answer tells those that were ignored."""
    allowed_origins: tuple[str, ...] = ()
    """Web pages from these origins may call, as https://console.example. Empty: none may."""


class Config(Section):
    """The whole file."""

    name: str = Field(default_factory=socket.gethostname)
    """This router's name in the ledger."""
    listen: Listen = "127.0.0.1:8500"
    plaintext_anywhere: bool = False
    """Serve without TLS on other than loopback addresses: for networks that encrypt by themselves."""
    models: Annotated[tuple[ModelConfig, ...], Field(min_length=1)]
    """The first is the default model."""
    aliases: tuple[Alias, ...] = ()
    worker_link: WorkerLink = WorkerLink()
    limits: Limits = Limits()
    timeouts: Timeouts = Timeouts()
    resume: Resume = Resume()
    telemetry: Telemetry = Telemetry()
    store: Store = Field(default_factory=Store)
    auth: Auth = Auth()
    tls: Tls | None = None
    quota: QuotaConfig = QuotaConfig()
    queue: Queue = Queue()
    routing: Routing = Routing()
    http: Http = Http()

    @model_validator(mode="after")
    def _holds_together(self) -> Config:
        check_models(self.models, self.aliases)
        if not (self.worker_link.ca or all(self.worker_link.is_plain(it) for model in self.models for it in model.workers)):
            raise ValueError(NEEDS_TLS)
        on_loopback = all(is_loopback(address) for address in (self.listen, self.http.listen) if address)
        if not (self.tls or on_loopback or self.plaintext_anywhere):
            raise ValueError("listen: other than a loopback address needs [tls], or plaintext_anywhere = true")
        if self.auth.anonymous and not on_loopback:
            raise ValueError("auth.anonymous: only while `listen` is a loopback address")
        if self.quota.routers > 1 and not self.quota.redis.get_secret_value():
            raise ValueError("quota.redis: several routers must share one")
        return self


def load_config(path: Path, environment: Mapping[str, str] = os.environ) -> Config:
    """Reads a TOML file, and secrets from the environment. Raises ConfigInvalid."""
    try:
        values = tomllib.loads(path.read_text())
    except OSError as error:
        raise ConfigInvalid(f"{path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigInvalid(f"{path}: {error}") from error
    for variable, (section, key) in SECRETS.items():
        if variable in environment and isinstance(values.setdefault(section, {}), dict):
            values[section][key] = environment[variable]
    return read_config(values)


def read_config(values: dict[str, Any]) -> Config:
    """A configuration from plain values. Raises ConfigInvalid."""
    try:
        return Config.model_validate(values)
    except ValidationError as error:
        raise ConfigInvalid("\n".join(_tell_faults(error.errors()))) from error


def cannot_bind(key: str, address: str) -> ConfigInvalid:
    """What to raise when a port cannot be had."""
    return ConfigInvalid(f"{key}: cannot bind {address}: the port is taken, or the address is not one of this machine's")


def _tell_faults(faults: Sequence[ErrorDetails]) -> Iterator[str]:
    """A line for each, but not for a list that is too short without what was wrong in it."""
    paths = [".".join(map(str, fault["loc"])) for fault in faults]
    for path, fault in zip(paths, faults, strict=True):
        if fault["type"] != "too_short" or not any(other.startswith(f"{path}.") for other in paths):
            words = _WORDS.get(fault["type"]) or fault["msg"].removeprefix("Value error, ")
            yield ": ".join(filter(None, (path, words)))


_WORDS = {"extra_forbidden": "there is no such key", "missing": "must be given"}
"""For what pydantic says in words of its own."""

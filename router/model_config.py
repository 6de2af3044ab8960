"""The models of the configuration: where their workers are, and how they stand to each other."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

Count = Annotated[int, Field(ge=1, strict=True)]
Seconds = Annotated[float, Field(gt=0, strict=True)]
Folder = Annotated[Path, AfterValidator(Path.expanduser)]
_ADDRESS = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+):([0-9]{1,5})")


def check_address(text: str) -> str:
    """Raises ValueError for what is no host:port. gRPC itself takes port 99999 for another."""
    match = _ADDRESS.fullmatch(text)
    if not match or int(match[2]) > 65535:
        raise ValueError(f"must be host:port, not {text!r}")
    return text


Address = Annotated[str, AfterValidator(check_address)]
ModelName = Annotated[str, Field(pattern=r"^[A-Za-z0-9._/-]{1,128}$")]


class Section(BaseModel):
    """A table of the file. An unknown key is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Discovery(Section):
    """Where workers are that come and go; one of these."""

    file: Folder | None = None
    """A file with an address on each line, read again when it changes."""
    dns: Annotated[str, Field(pattern=r"^[A-Za-z0-9.-]+:[0-9]+$")] | None = None
    """A host:port whose every IP address is a worker, as a headless service has them."""
    service: Annotated[str, Field(pattern=r"^[a-z0-9-]+/[a-z0-9-]+:[a-z0-9-]+$")] | None = None
    """A Kubernetes service whose pods are workers, as namespace/name:port."""

    @model_validator(mode="after")
    def _is_one(self) -> Discovery:
        if sum(it is not None for it in (self.file, self.dns, self.service)) != 1:
            raise ValueError("exactly one of file, dns and service must be set")
        return self


class ModelConfig(Section):
    """A model that callers may name."""

    name: ModelName
    path: Folder
    """Folder with the tokenizer and chat template, in Hugging Face layout."""
    workers: tuple[Address, ...] = ()
    """Triton gRPC addresses, host:port; or `discovery` tells them."""
    discovery: Discovery | None = None
    default_output_tokens: Count = 512
    """Most tokens of an answer whose caller sets no limit."""
    shared_prefixes: bool = False
    """Tenants may share cached prefixes, and so learn from times what others asked. Workers that cannot keep them apart need it."""
    slo_ttft_s: Seconds | None = None
    """Time to the first token that this model aims at. A turn that would have to wait for longer is answered by `smaller`."""
    smaller: ModelName | None = None
    """The model that answers, disclosed and at its own price, while this one is down or too busy and the tenant allows it."""

    @model_validator(mode="after")
    def _has_workers(self) -> ModelConfig:
        if bool(self.workers) == (self.discovery is not None):
            raise ValueError("either `workers` or `discovery` must say where they are")
        return self


NEEDS_TLS = "a worker at other than a loopback address needs worker_link.ca, or worker_link.plaintext_anywhere = true"


class WorkerLink(Section):
    """How workers are reached. The files are read again with each connection, so that certificates are renewed without a restart."""

    ca: Folder | None = None
    """Authority of the workers' certificates. Unset: no encryption."""
    certificate: Folder | None = None
    key: Folder | None = None
    """This router's own, which workers ask for."""
    server_name: str = ""
    """The name in the workers' certificates, where it is not the host that they are reached by."""
    credential: Folder | None = None
    """A file with the secret by which our own workers know routers; they have the same. Of several lines the first counts here."""
    plaintext_anywhere: bool = False
    """No encryption towards workers on other than loopback addresses either: for networks that encrypt by themselves."""

    @model_validator(mode="after")
    def _holds_together(self) -> WorkerLink:
        if (self.certificate is None) != (self.key is None):
            raise ValueError("certificate and key go together")
        if self.certificate and not self.ca:
            raise ValueError("ca: must be set too")
        return self

    def is_plain(self, address: str) -> bool:
        """Whether a worker at host:port may be reached without encryption."""
        return self.plaintext_anywhere or is_loopback(address)


def is_loopback(listen: str) -> bool:
    """Whether only this machine can connect to a host:port."""
    host = listen.rpartition(":")[0].strip("[]")
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or listen.startswith("unix:")


class Alias(Section):
    """A name that stands for several models: a predictor chooses for each request."""

    name: ModelName
    models: Annotated[tuple[ModelName, ...], Field(min_length=1)]
    """From the smallest, for easy requests, to the flagship, for hard ones. One that is down or full is passed over for the next larger."""


def check_models(models: Sequence[ModelConfig], aliases: Sequence[Alias]) -> None:
    """Raises ValueError unless names differ, name what there is, and no model is its own smaller one."""
    names, others = [model.name for model in models], [alias.name for alias in aliases]
    if len(set(names)) < len(names):
        raise ValueError("models: two models have the same name")
    if len({*names, *others}) < len(names) + len(others):
        raise ValueError("aliases: an alias has the name of a model or of another alias")
    for alias in aliases:
        if len(set(alias.models)) < len(alias.models) or not set(alias.models) <= set(names):
            raise ValueError(f"aliases: {alias.name} must name models, each once")
    smaller = {model.name: model.smaller for model in models}
    for model in models:
        if model.smaller is not None and model.smaller not in smaller:
            raise ValueError(f"models: the smaller model of {model.name} is not one of the models")
        if model.name in follow_smaller(smaller, model.name):
            raise ValueError(f"models: {model.name} is smaller than itself")


def follow_smaller(smaller: Mapping[str, str | None], name: str) -> Iterator[str]:
    """The models below one, largest first; ends where one would come a second time."""
    seen: set[str] = set()
    below = smaller[name]
    while below is not None and below not in seen:
        seen.add(below)
        yield below
        below = smaller[below]

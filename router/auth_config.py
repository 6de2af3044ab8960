"""The parts of the configuration that say who may call."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from router.model_config import Folder, Seconds, Section

Name = Annotated[str, Field(min_length=1, max_length=256)]


class Issuer(Section):
    """Who may vouch for callers by signed tokens (JWT, OIDC). Claims may be paths, as `realm_access.roles`."""

    url: Name
    """Equal to the tokens' `iss`."""
    audience: Name
    algorithm: Name
    """The one algorithm that its keys are for."""
    jwks_url: Name | None = None
    """Where its keys are. Unset: where `url`/.well-known/openid-configuration says."""
    leeway_s: Annotated[float, Field(ge=0, le=600)] = 30.0
    user_claim: Name = "sub"
    tenant_claim: Name = "tenant"
    roles_claim: Name = "roles"
    tenants: tuple[Name, ...] | None = None
    """Tenants that it may name. Unset: all."""
    roles: dict[str, Literal["caller", "tenant_admin", "operator"]] = Field(default_factory=dict)
    """What its role names mean here; others mean nothing. Everyone it vouches for is a caller."""


class Service(Section):
    """A service that shows a client certificate."""

    name: Name
    """SPIFFE id, URI or DNS name among the certificate's subject alternative names."""
    tenant: Name
    user: Name
    roles: tuple[Literal["caller", "tenant_admin", "operator"], ...] = ("caller",)


class Auth(Section):
    """Who may call, besides holders of API keys."""

    anonymous: bool = False
    """Callers without credentials are tenant `local`, and so are those with a bearer text that has not the form of a key or token. Only
    while the router listens on loopback addresses."""
    issuers: tuple[Issuer, ...] = ()
    services: tuple[Service, ...] = ()
    grace_s: Seconds = 300.0
    """How long known callers are served while the database is away."""

    @model_validator(mode="after")
    def _holds_together(self) -> Auth:
        if len({issuer.url for issuer in self.issuers}) < len(self.issuers):
            raise ValueError("issuers: two issuers have the same url")
        return self


class Tls(Section):
    """Encryption. The files are read again with each connection, so that certificates are renewed without a restart."""

    certificate: Folder
    key: Folder
    client_ca: Folder | None = None
    """Authority of client certificates; when set, every caller must show one."""

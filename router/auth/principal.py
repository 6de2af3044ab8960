"""Who a call is for and what it may do. The same value whichever way the caller was identified."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from enum import Enum

from router.errors import permission_denied


class Role(Enum):
    """What a caller may do besides reading about itself."""

    CALLER = "caller"
    """Run turns."""
    TENANT_ADMIN = "tenant_admin"
    """Change the own tenant's users and keys, see its usage."""
    OPERATOR = "operator"
    """Everything, for every tenant."""


def read_roles(names: Iterable[str]) -> frozenset[Role]:
    """Roles by their names in the database; names that this router does not know mean nothing."""
    known = set(names)
    return frozenset(role for role in Role if role.value in known)


@dataclass(frozen=True, slots=True)
class Principal:
    """An identified caller. `key_id` is an API key's prefix and empty otherwise; `models` None is every model."""

    tenant: str
    user: str
    roles: frozenset[Role]
    key_id: str = ""
    models: frozenset[str] | None = None

    def may_use(self, model: str) -> bool:
        """Whether the key is for a model."""
        return self.models is None or model in self.models

    def require_model(self, *models: str) -> None:
        """Raises CallerError unless the principal may run turns on one of these models."""
        self._require(Role.CALLER)
        if not any(map(self.may_use, models)):
            raise permission_denied("this key may not use this model")

    def require_operator(self) -> None:
        """Raises CallerError unless the principal may do everything."""
        self._require(Role.OPERATOR)

    def require_admin(self, tenant: str) -> None:
        """Raises CallerError unless the principal may administer a tenant."""
        if Role.OPERATOR not in self.roles:
            self._require(Role.TENANT_ADMIN)
            if tenant != self.tenant:
                raise permission_denied("this is another tenant's")

    def require_view(self, tenant: str) -> None:
        """Raises CallerError unless the principal may see a tenant's affairs; empty means those of all."""
        if tenant:
            self.require_admin(tenant)
        else:
            self.require_operator()

    def require_grant(self, tenant: str, roles: Collection[Role], models: Collection[str] | None) -> None:
        """Raises CallerError unless the principal may give these roles and models (None: all) to a user of a tenant: none that it lacks."""
        self.require_admin(tenant)
        if Role.OPERATOR in roles:
            self.require_operator()
        if Role.OPERATOR not in self.roles and self.models is not None and (models is None or not self.models.issuperset(models)):
            raise permission_denied("these are more models than the caller's own key may use")

    def _require(self, role: Role) -> None:
        if role not in self.roles:
            raise permission_denied(f"the role {role.value} is needed")

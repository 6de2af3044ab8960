"""Who calls, asked before any handler runs: the same for every method of every service, of any cardinality."""

from __future__ import annotations

from router.auth.authenticate import Authenticator
from router.transport.requests import current_call, set_principal

_TRITON = "/inference.GRPCInferenceService/"
_OPEN = ("/grpc.health.v1.Health/", f"{_TRITON}ServerLive", f"{_TRITON}ServerReady", f"{_TRITON}ModelReady")
"""What anybody may ask, for load balancers and orchestrators."""


class Gate:
    """Refuses callers who are nobody, and tells handlers who the others are."""

    def __init__(self, authenticator: Authenticator) -> None:
        self._authenticator = authenticator

    async def admit(self, method_name: str) -> None:
        """Looks at the current call. Raises CallerError UNAUTHENTICATED and RouterError IDENTITY_UNKNOWN."""
        if not method_name.startswith(_OPEN):
            call = current_call()
            set_principal(await self._authenticator.identify(call.credentials.headers, call.credentials.peer, call.request_id))

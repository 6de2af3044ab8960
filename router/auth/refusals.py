"""Why callers are refused: told to operators, by the log and a counter, and never to callers, who hear the same whatever it was."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum

from prometheus_client import Counter

from router.errors import Unauthenticated
from router.logs import fields

log = logging.getLogger("tidegate.auth")

_MOST_DETAIL = 120


class Why(StrEnum):
    """The reasons, which are the counter's label: there are no others."""

    MISSING = "missing"
    MALFORMED = "malformed"
    CERTIFICATE = "certificate"
    UNKNOWN_KEY = "unknown_key"
    WRONG_KEY = "wrong_key"
    OTHER_PEPPER = "other_pepper"
    REVOKED = "revoked"
    EXPIRED = "expired"
    NOT_YET_VALID = "not_yet_valid"
    TENANT_DISABLED = "tenant_disabled"
    ISSUER = "issuer"
    ALGORITHM = "algorithm"
    UNKNOWN_KID = "unknown_kid"
    SIGNATURE = "signature"
    AUDIENCE = "audience"
    CLAIMS = "claims"
    ORIGIN = "origin"


class Refusals:
    """Keeps account of refusals."""

    def __init__(self, counter: Counter) -> None:
        """`counter` has the label `reason`."""
        self._counter = counter

    def note(self, why: str, detail: str, request_id: str) -> None:
        """One caller was refused; `why` is one of Why."""
        self._counter.labels(why).inc()
        extra = fields(why, request_id=request_id, reason=why, detail=detail[:_MOST_DETAIL])
        log.warning("a caller was refused", extra=extra)

    @contextmanager
    def noted(self, request_id: str) -> Iterator[None]:
        """Notes the Unauthenticated that passes through here."""
        try:
            yield
        except Unauthenticated as refused:
            self.note(refused.why, refused.detail, request_id)
            raise

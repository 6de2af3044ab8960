"""Why a turn gets no place. All of these mean "busy, come again", never "broken"."""

from __future__ import annotations

from router.errors import CallerError, Code, RouterError

SOONEST_S = 0.1
"""A predicted wait may be nothing; a refused caller who comes again at once only adds to what refused it."""


def queue_full(retry_after_s: float) -> RouterError:
    """As many turns of all tenants wait as may."""
    text = "too many turns wait for this model; try again later"
    return RouterError(Code.RESOURCE_EXHAUSTED, "QUEUE_FULL", text, retry_after_s=max(retry_after_s, SOONEST_S))


def tenant_queue_full(limit: int, retry_after_s: float) -> CallerError:
    """As many turns of this tenant wait as may."""
    text = f"at most {limit} of your turns may wait for this model; try again later"
    return CallerError(Code.RESOURCE_EXHAUSTED, "QUEUE_FULL", text, retry_after_s=max(retry_after_s, SOONEST_S))


def waited_too_long(retry_after_s: float) -> RouterError:
    """The longest wait that this router allows has passed."""
    text = "no worker became free in time; try again later"
    return RouterError(Code.RESOURCE_EXHAUSTED, "QUEUE_TIMEOUT", text, retry_after_s=max(retry_after_s, SOONEST_S))


def deadline_passed(retry_after_s: float) -> CallerError:
    """The caller's deadline passed while the turn waited."""
    text = "the deadline passed while the turn waited; allow more time or try again later"
    return CallerError(Code.RESOURCE_EXHAUSTED, "DEADLINE_PASSED", text, retry_after_s=max(retry_after_s, SOONEST_S))


def deadline_unreachable(retry_after_s: float) -> CallerError:
    """Even a lucky wait would end after the caller's deadline."""
    text = "the queue is longer than the deadline allows; allow more time or try again later"
    return CallerError(Code.RESOURCE_EXHAUSTED, "DEADLINE_UNREACHABLE", text, retry_after_s=max(retry_after_s, SOONEST_S))

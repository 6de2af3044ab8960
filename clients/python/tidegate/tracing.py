"""The caller's trace. OpenTelemetry is used where it is installed, and not asked for."""

from __future__ import annotations

from functools import cache
from typing import Any


def trace_headers() -> dict[str, str]:
    """W3C headers of the current span; none without one."""
    headers: dict[str, str] = {}
    propagator = _propagator()
    if propagator is not None:
        propagator.inject(headers)
    return headers


@cache
def _propagator() -> Any:
    try:
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
    except ImportError:
        return None
    return TraceContextTextMapPropagator()

"""Tidegate's Python client."""

from tidegate.client import Client, Session, Turn, assistant, system, user
from tidegate.errors import StreamLost, TidegateError

__all__ = ["Client", "Session", "StreamLost", "TidegateError", "Turn", "assistant", "system", "user"]

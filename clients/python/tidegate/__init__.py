"""Tidegate's Python client: language-model turns over bidirectional gRPC streams. Start with `Client`."""

from tidegate.client import Client
from tidegate.credentials import PlaintextRefused, Tls
from tidegate.errors import (
    AccessDenied,
    DeadlineExceeded,
    Exhausted,
    OutputInvalid,
    RequestInvalid,
    StreamLost,
    TidegateError,
    TooManyRounds,
    Unavailable,
)
from tidegate.functions import ToolFailed
from tidegate.messages import assistant, system, tool_result, user
from tidegate.options import TurnOptions
from tidegate.session import Session
from tidegate.tool_loop import ToolLoop
from tidegate.turn import Turn
from tidegate.v1.event_pb2 import Event, FinishReason, Started, Usage
from tidegate.v1.turn_pb2 import Message, Priority, ResponseFormat, Sampling, Tool, ToolCall

__all__ = [
    "AccessDenied",
    "Client",
    "DeadlineExceeded",
    "Event",
    "Exhausted",
    "FinishReason",
    "Message",
    "OutputInvalid",
    "PlaintextRefused",
    "Priority",
    "RequestInvalid",
    "ResponseFormat",
    "Sampling",
    "Session",
    "Started",
    "StreamLost",
    "TidegateError",
    "Tls",
    "TooManyRounds",
    "Tool",
    "ToolCall",
    "ToolFailed",
    "ToolLoop",
    "Turn",
    "TurnOptions",
    "Unavailable",
    "Usage",
    "assistant",
    "system",
    "tool_result",
    "user",
]

import datetime

from google.protobuf import duration_pb2 as _duration_pb2
from tidegate.v1 import event_pb2 as _event_pb2
from tidegate.v1 import turn_pb2 as _turn_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ConverseRequest(_message.Message):
    __slots__ = ("setup", "start", "cancel", "tool_results", "leave")
    SETUP_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    CANCEL_FIELD_NUMBER: _ClassVar[int]
    TOOL_RESULTS_FIELD_NUMBER: _ClassVar[int]
    LEAVE_FIELD_NUMBER: _ClassVar[int]
    setup: Setup
    start: StartTurn
    cancel: CancelTurn
    tool_results: ToolResults
    leave: Leave
    def __init__(self, setup: _Optional[_Union[Setup, _Mapping]] = ..., start: _Optional[_Union[StartTurn, _Mapping]] = ..., cancel: _Optional[_Union[CancelTurn, _Mapping]] = ..., tool_results: _Optional[_Union[ToolResults, _Mapping]] = ..., leave: _Optional[_Union[Leave, _Mapping]] = ...) -> None: ...

class Setup(_message.Message):
    __slots__ = ("model", "sampling", "resume_for", "resume")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    SAMPLING_FIELD_NUMBER: _ClassVar[int]
    RESUME_FOR_FIELD_NUMBER: _ClassVar[int]
    RESUME_FIELD_NUMBER: _ClassVar[int]
    model: str
    sampling: _turn_pb2.Sampling
    resume_for: _duration_pb2.Duration
    resume: Resume
    def __init__(self, model: _Optional[str] = ..., sampling: _Optional[_Union[_turn_pb2.Sampling, _Mapping]] = ..., resume_for: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., resume: _Optional[_Union[Resume, _Mapping]] = ...) -> None: ...

class Resume(_message.Message):
    __slots__ = ("stream_id", "after_sequence", "attempt")
    STREAM_ID_FIELD_NUMBER: _ClassVar[int]
    AFTER_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    stream_id: str
    after_sequence: int
    attempt: int
    def __init__(self, stream_id: _Optional[str] = ..., after_sequence: _Optional[int] = ..., attempt: _Optional[int] = ...) -> None: ...

class StartTurn(_message.Message):
    __slots__ = ("turn", "spec")
    TURN_FIELD_NUMBER: _ClassVar[int]
    SPEC_FIELD_NUMBER: _ClassVar[int]
    turn: int
    spec: _turn_pb2.TurnSpec
    def __init__(self, turn: _Optional[int] = ..., spec: _Optional[_Union[_turn_pb2.TurnSpec, _Mapping]] = ...) -> None: ...

class CancelTurn(_message.Message):
    __slots__ = ("turn",)
    TURN_FIELD_NUMBER: _ClassVar[int]
    turn: int
    def __init__(self, turn: _Optional[int] = ...) -> None: ...

class ToolResults(_message.Message):
    __slots__ = ("turn", "results")
    TURN_FIELD_NUMBER: _ClassVar[int]
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    turn: int
    results: _containers.RepeatedCompositeFieldContainer[ToolResult]
    def __init__(self, turn: _Optional[int] = ..., results: _Optional[_Iterable[_Union[ToolResult, _Mapping]]] = ...) -> None: ...

class ToolResult(_message.Message):
    __slots__ = ("call_id", "content")
    CALL_ID_FIELD_NUMBER: _ClassVar[int]
    CONTENT_FIELD_NUMBER: _ClassVar[int]
    call_id: str
    content: str
    def __init__(self, call_id: _Optional[str] = ..., content: _Optional[str] = ...) -> None: ...

class Leave(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ConverseResponse(_message.Message):
    __slots__ = ("events", "sequence")
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    events: _containers.RepeatedCompositeFieldContainer[_event_pb2.Event]
    sequence: int
    def __init__(self, events: _Optional[_Iterable[_Union[_event_pb2.Event, _Mapping]]] = ..., sequence: _Optional[int] = ...) -> None: ...

class CompleteRequest(_message.Message):
    __slots__ = ("spec",)
    SPEC_FIELD_NUMBER: _ClassVar[int]
    spec: _turn_pb2.TurnSpec
    def __init__(self, spec: _Optional[_Union[_turn_pb2.TurnSpec, _Mapping]] = ...) -> None: ...

class CompleteResponse(_message.Message):
    __slots__ = ("text", "finish_reason", "usage", "started", "logprobs", "tool_calls", "degraded")
    TEXT_FIELD_NUMBER: _ClassVar[int]
    FINISH_REASON_FIELD_NUMBER: _ClassVar[int]
    USAGE_FIELD_NUMBER: _ClassVar[int]
    STARTED_FIELD_NUMBER: _ClassVar[int]
    LOGPROBS_FIELD_NUMBER: _ClassVar[int]
    TOOL_CALLS_FIELD_NUMBER: _ClassVar[int]
    DEGRADED_FIELD_NUMBER: _ClassVar[int]
    text: str
    finish_reason: _event_pb2.FinishReason
    usage: _event_pb2.Usage
    started: _event_pb2.Started
    logprobs: _containers.RepeatedCompositeFieldContainer[_event_pb2.TokenLogprob]
    tool_calls: _containers.RepeatedCompositeFieldContainer[_turn_pb2.ToolCall]
    degraded: _event_pb2.Degraded
    def __init__(self, text: _Optional[str] = ..., finish_reason: _Optional[_Union[_event_pb2.FinishReason, str]] = ..., usage: _Optional[_Union[_event_pb2.Usage, _Mapping]] = ..., started: _Optional[_Union[_event_pb2.Started, _Mapping]] = ..., logprobs: _Optional[_Iterable[_Union[_event_pb2.TokenLogprob, _Mapping]]] = ..., tool_calls: _Optional[_Iterable[_Union[_turn_pb2.ToolCall, _Mapping]]] = ..., degraded: _Optional[_Union[_event_pb2.Degraded, _Mapping]] = ...) -> None: ...

class StreamRequest(_message.Message):
    __slots__ = ("spec",)
    SPEC_FIELD_NUMBER: _ClassVar[int]
    spec: _turn_pb2.TurnSpec
    def __init__(self, spec: _Optional[_Union[_turn_pb2.TurnSpec, _Mapping]] = ...) -> None: ...

class StreamResponse(_message.Message):
    __slots__ = ("events",)
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    events: _containers.RepeatedCompositeFieldContainer[_event_pb2.Event]
    def __init__(self, events: _Optional[_Iterable[_Union[_event_pb2.Event, _Mapping]]] = ...) -> None: ...

class CountTokensRequest(_message.Message):
    __slots__ = ("model", "messages", "tools", "tool_choice")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    TOOLS_FIELD_NUMBER: _ClassVar[int]
    TOOL_CHOICE_FIELD_NUMBER: _ClassVar[int]
    model: str
    messages: _containers.RepeatedCompositeFieldContainer[_turn_pb2.Message]
    tools: _containers.RepeatedCompositeFieldContainer[_turn_pb2.Tool]
    tool_choice: _turn_pb2.ToolChoice
    def __init__(self, model: _Optional[str] = ..., messages: _Optional[_Iterable[_Union[_turn_pb2.Message, _Mapping]]] = ..., tools: _Optional[_Iterable[_Union[_turn_pb2.Tool, _Mapping]]] = ..., tool_choice: _Optional[_Union[_turn_pb2.ToolChoice, _Mapping]] = ...) -> None: ...

class CountTokensResponse(_message.Message):
    __slots__ = ("prompt_tokens", "context_tokens")
    PROMPT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    CONTEXT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    prompt_tokens: int
    context_tokens: int
    def __init__(self, prompt_tokens: _Optional[int] = ..., context_tokens: _Optional[int] = ...) -> None: ...

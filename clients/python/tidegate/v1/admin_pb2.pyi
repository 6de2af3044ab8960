import datetime

from google.protobuf import duration_pb2 as _duration_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class AccessRole(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ACCESS_ROLE_UNSPECIFIED: _ClassVar[AccessRole]
    ACCESS_ROLE_CALLER: _ClassVar[AccessRole]
    ACCESS_ROLE_TENANT_ADMIN: _ClassVar[AccessRole]
    ACCESS_ROLE_OPERATOR: _ClassVar[AccessRole]

class WorkerPhase(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    WORKER_PHASE_UNSPECIFIED: _ClassVar[WorkerPhase]
    WORKER_PHASE_SERVING: _ClassVar[WorkerPhase]
    WORKER_PHASE_DRAINING: _ClassVar[WorkerPhase]
    WORKER_PHASE_LEAVING: _ClassVar[WorkerPhase]
    WORKER_PHASE_ABSENT: _ClassVar[WorkerPhase]
ACCESS_ROLE_UNSPECIFIED: AccessRole
ACCESS_ROLE_CALLER: AccessRole
ACCESS_ROLE_TENANT_ADMIN: AccessRole
ACCESS_ROLE_OPERATOR: AccessRole
WORKER_PHASE_UNSPECIFIED: WorkerPhase
WORKER_PHASE_SERVING: WorkerPhase
WORKER_PHASE_DRAINING: WorkerPhase
WORKER_PHASE_LEAVING: WorkerPhase
WORKER_PHASE_ABSENT: WorkerPhase

class Tenant(_message.Message):
    __slots__ = ("tenant_id", "name", "weight", "created_at", "disabled_at", "no_downgrade")
    TENANT_ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_FIELD_NUMBER: _ClassVar[int]
    CREATED_AT_FIELD_NUMBER: _ClassVar[int]
    DISABLED_AT_FIELD_NUMBER: _ClassVar[int]
    NO_DOWNGRADE_FIELD_NUMBER: _ClassVar[int]
    tenant_id: str
    name: str
    weight: float
    created_at: _timestamp_pb2.Timestamp
    disabled_at: _timestamp_pb2.Timestamp
    no_downgrade: bool
    def __init__(self, tenant_id: _Optional[str] = ..., name: _Optional[str] = ..., weight: _Optional[float] = ..., created_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., disabled_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., no_downgrade: _Optional[bool] = ...) -> None: ...

class User(_message.Message):
    __slots__ = ("tenant_id", "user_id", "name", "created_at")
    TENANT_ID_FIELD_NUMBER: _ClassVar[int]
    USER_ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    CREATED_AT_FIELD_NUMBER: _ClassVar[int]
    tenant_id: str
    user_id: str
    name: str
    created_at: _timestamp_pb2.Timestamp
    def __init__(self, tenant_id: _Optional[str] = ..., user_id: _Optional[str] = ..., name: _Optional[str] = ..., created_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class ModelSet(_message.Message):
    __slots__ = ("models",)
    MODELS_FIELD_NUMBER: _ClassVar[int]
    models: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, models: _Optional[_Iterable[str]] = ...) -> None: ...

class ApiKey(_message.Message):
    __slots__ = ("prefix", "tenant_id", "user_id", "name", "roles", "models", "created_at", "expires_at", "revoked_at", "old_pepper")
    PREFIX_FIELD_NUMBER: _ClassVar[int]
    TENANT_ID_FIELD_NUMBER: _ClassVar[int]
    USER_ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    ROLES_FIELD_NUMBER: _ClassVar[int]
    MODELS_FIELD_NUMBER: _ClassVar[int]
    CREATED_AT_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_AT_FIELD_NUMBER: _ClassVar[int]
    REVOKED_AT_FIELD_NUMBER: _ClassVar[int]
    OLD_PEPPER_FIELD_NUMBER: _ClassVar[int]
    prefix: str
    tenant_id: str
    user_id: str
    name: str
    roles: _containers.RepeatedScalarFieldContainer[AccessRole]
    models: ModelSet
    created_at: _timestamp_pb2.Timestamp
    expires_at: _timestamp_pb2.Timestamp
    revoked_at: _timestamp_pb2.Timestamp
    old_pepper: bool
    def __init__(self, prefix: _Optional[str] = ..., tenant_id: _Optional[str] = ..., user_id: _Optional[str] = ..., name: _Optional[str] = ..., roles: _Optional[_Iterable[_Union[AccessRole, str]]] = ..., models: _Optional[_Union[ModelSet, _Mapping]] = ..., created_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., expires_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., revoked_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., old_pepper: _Optional[bool] = ...) -> None: ...

class QuotaScope(_message.Message):
    __slots__ = ("tenant_id", "user_id", "key_prefix", "model")
    TENANT_ID_FIELD_NUMBER: _ClassVar[int]
    USER_ID_FIELD_NUMBER: _ClassVar[int]
    KEY_PREFIX_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    tenant_id: str
    user_id: str
    key_prefix: str
    model: str
    def __init__(self, tenant_id: _Optional[str] = ..., user_id: _Optional[str] = ..., key_prefix: _Optional[str] = ..., model: _Optional[str] = ...) -> None: ...

class QuotaLimits(_message.Message):
    __slots__ = ("requests_per_minute", "input_tokens_per_minute", "output_tokens_per_minute", "tokens_per_day", "concurrent_turns", "money_per_month")
    REQUESTS_PER_MINUTE_FIELD_NUMBER: _ClassVar[int]
    INPUT_TOKENS_PER_MINUTE_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_TOKENS_PER_MINUTE_FIELD_NUMBER: _ClassVar[int]
    TOKENS_PER_DAY_FIELD_NUMBER: _ClassVar[int]
    CONCURRENT_TURNS_FIELD_NUMBER: _ClassVar[int]
    MONEY_PER_MONTH_FIELD_NUMBER: _ClassVar[int]
    requests_per_minute: int
    input_tokens_per_minute: int
    output_tokens_per_minute: int
    tokens_per_day: int
    concurrent_turns: int
    money_per_month: str
    def __init__(self, requests_per_minute: _Optional[int] = ..., input_tokens_per_minute: _Optional[int] = ..., output_tokens_per_minute: _Optional[int] = ..., tokens_per_day: _Optional[int] = ..., concurrent_turns: _Optional[int] = ..., money_per_month: _Optional[str] = ...) -> None: ...

class Quota(_message.Message):
    __slots__ = ("scope", "limits")
    SCOPE_FIELD_NUMBER: _ClassVar[int]
    LIMITS_FIELD_NUMBER: _ClassVar[int]
    scope: QuotaScope
    limits: QuotaLimits
    def __init__(self, scope: _Optional[_Union[QuotaScope, _Mapping]] = ..., limits: _Optional[_Union[QuotaLimits, _Mapping]] = ...) -> None: ...

class Price(_message.Message):
    __slots__ = ("model", "valid_from", "prompt", "cached", "completion")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    VALID_FROM_FIELD_NUMBER: _ClassVar[int]
    PROMPT_FIELD_NUMBER: _ClassVar[int]
    CACHED_FIELD_NUMBER: _ClassVar[int]
    COMPLETION_FIELD_NUMBER: _ClassVar[int]
    model: str
    valid_from: _timestamp_pb2.Timestamp
    prompt: str
    cached: str
    completion: str
    def __init__(self, model: _Optional[str] = ..., valid_from: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., prompt: _Optional[str] = ..., cached: _Optional[str] = ..., completion: _Optional[str] = ...) -> None: ...

class UsageDay(_message.Message):
    __slots__ = ("day", "tenant_id", "user_id", "key_prefix", "model", "turns", "unpriced_turns", "prompt_tokens", "cached_tokens", "completion_tokens", "cost")
    DAY_FIELD_NUMBER: _ClassVar[int]
    TENANT_ID_FIELD_NUMBER: _ClassVar[int]
    USER_ID_FIELD_NUMBER: _ClassVar[int]
    KEY_PREFIX_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    TURNS_FIELD_NUMBER: _ClassVar[int]
    UNPRICED_TURNS_FIELD_NUMBER: _ClassVar[int]
    PROMPT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    CACHED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    COMPLETION_TOKENS_FIELD_NUMBER: _ClassVar[int]
    COST_FIELD_NUMBER: _ClassVar[int]
    day: str
    tenant_id: str
    user_id: str
    key_prefix: str
    model: str
    turns: int
    unpriced_turns: int
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    cost: str
    def __init__(self, day: _Optional[str] = ..., tenant_id: _Optional[str] = ..., user_id: _Optional[str] = ..., key_prefix: _Optional[str] = ..., model: _Optional[str] = ..., turns: _Optional[int] = ..., unpriced_turns: _Optional[int] = ..., prompt_tokens: _Optional[int] = ..., cached_tokens: _Optional[int] = ..., completion_tokens: _Optional[int] = ..., cost: _Optional[str] = ...) -> None: ...

class AuditEntry(_message.Message):
    __slots__ = ("entry_id", "at", "actor", "action", "tenant_id", "target", "detail_json")
    ENTRY_ID_FIELD_NUMBER: _ClassVar[int]
    AT_FIELD_NUMBER: _ClassVar[int]
    ACTOR_FIELD_NUMBER: _ClassVar[int]
    ACTION_FIELD_NUMBER: _ClassVar[int]
    TENANT_ID_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    DETAIL_JSON_FIELD_NUMBER: _ClassVar[int]
    entry_id: int
    at: _timestamp_pb2.Timestamp
    actor: str
    action: str
    tenant_id: str
    target: str
    detail_json: str
    def __init__(self, entry_id: _Optional[int] = ..., at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., actor: _Optional[str] = ..., action: _Optional[str] = ..., tenant_id: _Optional[str] = ..., target: _Optional[str] = ..., detail_json: _Optional[str] = ...) -> None: ...

class ModelQueue(_message.Message):
    __slots__ = ("model", "waiting", "running", "slots", "tenants")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    WAITING_FIELD_NUMBER: _ClassVar[int]
    RUNNING_FIELD_NUMBER: _ClassVar[int]
    SLOTS_FIELD_NUMBER: _ClassVar[int]
    TENANTS_FIELD_NUMBER: _ClassVar[int]
    model: str
    waiting: int
    running: int
    slots: int
    tenants: _containers.RepeatedCompositeFieldContainer[QueueTenant]
    def __init__(self, model: _Optional[str] = ..., waiting: _Optional[int] = ..., running: _Optional[int] = ..., slots: _Optional[int] = ..., tenants: _Optional[_Iterable[_Union[QueueTenant, _Mapping]]] = ...) -> None: ...

class QueueTenant(_message.Message):
    __slots__ = ("tenant_id", "waiting", "running", "counter")
    TENANT_ID_FIELD_NUMBER: _ClassVar[int]
    WAITING_FIELD_NUMBER: _ClassVar[int]
    RUNNING_FIELD_NUMBER: _ClassVar[int]
    COUNTER_FIELD_NUMBER: _ClassVar[int]
    tenant_id: str
    waiting: int
    running: int
    counter: float
    def __init__(self, tenant_id: _Optional[str] = ..., waiting: _Optional[int] = ..., running: _Optional[int] = ..., counter: _Optional[float] = ...) -> None: ...

class Worker(_message.Message):
    __slots__ = ("model", "address", "phase", "up", "ejected", "silence", "engine", "profile", "slots", "active_turns", "queued_turns", "router_turns", "used_blocks", "total_blocks", "pace", "prefix_error")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    PHASE_FIELD_NUMBER: _ClassVar[int]
    UP_FIELD_NUMBER: _ClassVar[int]
    EJECTED_FIELD_NUMBER: _ClassVar[int]
    SILENCE_FIELD_NUMBER: _ClassVar[int]
    ENGINE_FIELD_NUMBER: _ClassVar[int]
    PROFILE_FIELD_NUMBER: _ClassVar[int]
    SLOTS_FIELD_NUMBER: _ClassVar[int]
    ACTIVE_TURNS_FIELD_NUMBER: _ClassVar[int]
    QUEUED_TURNS_FIELD_NUMBER: _ClassVar[int]
    ROUTER_TURNS_FIELD_NUMBER: _ClassVar[int]
    USED_BLOCKS_FIELD_NUMBER: _ClassVar[int]
    TOTAL_BLOCKS_FIELD_NUMBER: _ClassVar[int]
    PACE_FIELD_NUMBER: _ClassVar[int]
    PREFIX_ERROR_FIELD_NUMBER: _ClassVar[int]
    model: str
    address: str
    phase: WorkerPhase
    up: bool
    ejected: bool
    silence: _duration_pb2.Duration
    engine: str
    profile: str
    slots: int
    active_turns: int
    queued_turns: int
    router_turns: int
    used_blocks: int
    total_blocks: int
    pace: float
    prefix_error: float
    def __init__(self, model: _Optional[str] = ..., address: _Optional[str] = ..., phase: _Optional[_Union[WorkerPhase, str]] = ..., up: _Optional[bool] = ..., ejected: _Optional[bool] = ..., silence: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., engine: _Optional[str] = ..., profile: _Optional[str] = ..., slots: _Optional[int] = ..., active_turns: _Optional[int] = ..., queued_turns: _Optional[int] = ..., router_turns: _Optional[int] = ..., used_blocks: _Optional[int] = ..., total_blocks: _Optional[int] = ..., pace: _Optional[float] = ..., prefix_error: _Optional[float] = ...) -> None: ...

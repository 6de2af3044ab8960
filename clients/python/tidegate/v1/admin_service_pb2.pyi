import datetime

from google.protobuf import duration_pb2 as _duration_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2
from tidegate.v1 import admin_pb2 as _admin_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ExportFormat(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    EXPORT_FORMAT_UNSPECIFIED: _ClassVar[ExportFormat]
    EXPORT_FORMAT_CSV: _ClassVar[ExportFormat]
    EXPORT_FORMAT_JSON: _ClassVar[ExportFormat]

class ExportRow(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    EXPORT_ROW_UNSPECIFIED: _ClassVar[ExportRow]
    EXPORT_ROW_TURN: _ClassVar[ExportRow]
    EXPORT_ROW_DAY: _ClassVar[ExportRow]
EXPORT_FORMAT_UNSPECIFIED: ExportFormat
EXPORT_FORMAT_CSV: ExportFormat
EXPORT_FORMAT_JSON: ExportFormat
EXPORT_ROW_UNSPECIFIED: ExportRow
EXPORT_ROW_TURN: ExportRow
EXPORT_ROW_DAY: ExportRow

class PutTenantRequest(_message.Message):
    __slots__ = ("tenant_id", "name", "weight", "no_downgrade")
    TENANT_ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_FIELD_NUMBER: _ClassVar[int]
    NO_DOWNGRADE_FIELD_NUMBER: _ClassVar[int]
    tenant_id: str
    name: str
    weight: float
    no_downgrade: bool
    def __init__(self, tenant_id: _Optional[str] = ..., name: _Optional[str] = ..., weight: _Optional[float] = ..., no_downgrade: _Optional[bool] = ...) -> None: ...

class PutTenantResponse(_message.Message):
    __slots__ = ("tenant",)
    TENANT_FIELD_NUMBER: _ClassVar[int]
    tenant: _admin_pb2.Tenant
    def __init__(self, tenant: _Optional[_Union[_admin_pb2.Tenant, _Mapping]] = ...) -> None: ...

class DisableTenantRequest(_message.Message):
    __slots__ = ("tenant_id",)
    TENANT_ID_FIELD_NUMBER: _ClassVar[int]
    tenant_id: str
    def __init__(self, tenant_id: _Optional[str] = ...) -> None: ...

class DisableTenantResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class EnableTenantRequest(_message.Message):
    __slots__ = ("tenant_id",)
    TENANT_ID_FIELD_NUMBER: _ClassVar[int]
    tenant_id: str
    def __init__(self, tenant_id: _Optional[str] = ...) -> None: ...

class EnableTenantResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListTenantsRequest(_message.Message):
    __slots__ = ("page_size", "page_token")
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    page_size: int
    page_token: str
    def __init__(self, page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListTenantsResponse(_message.Message):
    __slots__ = ("tenants", "next_page_token")
    TENANTS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    tenants: _containers.RepeatedCompositeFieldContainer[_admin_pb2.Tenant]
    next_page_token: str
    def __init__(self, tenants: _Optional[_Iterable[_Union[_admin_pb2.Tenant, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class PutUserRequest(_message.Message):
    __slots__ = ("tenant_id", "user_id", "name")
    TENANT_ID_FIELD_NUMBER: _ClassVar[int]
    USER_ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    tenant_id: str
    user_id: str
    name: str
    def __init__(self, tenant_id: _Optional[str] = ..., user_id: _Optional[str] = ..., name: _Optional[str] = ...) -> None: ...

class PutUserResponse(_message.Message):
    __slots__ = ("user",)
    USER_FIELD_NUMBER: _ClassVar[int]
    user: _admin_pb2.User
    def __init__(self, user: _Optional[_Union[_admin_pb2.User, _Mapping]] = ...) -> None: ...

class ListUsersRequest(_message.Message):
    __slots__ = ("tenant_id", "page_size", "page_token")
    TENANT_ID_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    tenant_id: str
    page_size: int
    page_token: str
    def __init__(self, tenant_id: _Optional[str] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListUsersResponse(_message.Message):
    __slots__ = ("users", "next_page_token")
    USERS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    users: _containers.RepeatedCompositeFieldContainer[_admin_pb2.User]
    next_page_token: str
    def __init__(self, users: _Optional[_Iterable[_Union[_admin_pb2.User, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class CreateKeyRequest(_message.Message):
    __slots__ = ("tenant_id", "user_id", "name", "roles", "models", "expires_at")
    TENANT_ID_FIELD_NUMBER: _ClassVar[int]
    USER_ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    ROLES_FIELD_NUMBER: _ClassVar[int]
    MODELS_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_AT_FIELD_NUMBER: _ClassVar[int]
    tenant_id: str
    user_id: str
    name: str
    roles: _containers.RepeatedScalarFieldContainer[_admin_pb2.AccessRole]
    models: _admin_pb2.ModelSet
    expires_at: _timestamp_pb2.Timestamp
    def __init__(self, tenant_id: _Optional[str] = ..., user_id: _Optional[str] = ..., name: _Optional[str] = ..., roles: _Optional[_Iterable[_Union[_admin_pb2.AccessRole, str]]] = ..., models: _Optional[_Union[_admin_pb2.ModelSet, _Mapping]] = ..., expires_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class CreateKeyResponse(_message.Message):
    __slots__ = ("key_text", "prefix")
    KEY_TEXT_FIELD_NUMBER: _ClassVar[int]
    PREFIX_FIELD_NUMBER: _ClassVar[int]
    key_text: str
    prefix: str
    def __init__(self, key_text: _Optional[str] = ..., prefix: _Optional[str] = ...) -> None: ...

class ListKeysRequest(_message.Message):
    __slots__ = ("tenant_id", "page_size", "page_token", "old_pepper")
    TENANT_ID_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    OLD_PEPPER_FIELD_NUMBER: _ClassVar[int]
    tenant_id: str
    page_size: int
    page_token: str
    old_pepper: bool
    def __init__(self, tenant_id: _Optional[str] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ..., old_pepper: _Optional[bool] = ...) -> None: ...

class ListKeysResponse(_message.Message):
    __slots__ = ("keys", "next_page_token")
    KEYS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    keys: _containers.RepeatedCompositeFieldContainer[_admin_pb2.ApiKey]
    next_page_token: str
    def __init__(self, keys: _Optional[_Iterable[_Union[_admin_pb2.ApiKey, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class RotateKeyRequest(_message.Message):
    __slots__ = ("tenant_id", "prefix", "overlap")
    TENANT_ID_FIELD_NUMBER: _ClassVar[int]
    PREFIX_FIELD_NUMBER: _ClassVar[int]
    OVERLAP_FIELD_NUMBER: _ClassVar[int]
    tenant_id: str
    prefix: str
    overlap: _duration_pb2.Duration
    def __init__(self, tenant_id: _Optional[str] = ..., prefix: _Optional[str] = ..., overlap: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class RotateKeyResponse(_message.Message):
    __slots__ = ("key_text", "prefix")
    KEY_TEXT_FIELD_NUMBER: _ClassVar[int]
    PREFIX_FIELD_NUMBER: _ClassVar[int]
    key_text: str
    prefix: str
    def __init__(self, key_text: _Optional[str] = ..., prefix: _Optional[str] = ...) -> None: ...

class RevokeKeyRequest(_message.Message):
    __slots__ = ("tenant_id", "prefix")
    TENANT_ID_FIELD_NUMBER: _ClassVar[int]
    PREFIX_FIELD_NUMBER: _ClassVar[int]
    tenant_id: str
    prefix: str
    def __init__(self, tenant_id: _Optional[str] = ..., prefix: _Optional[str] = ...) -> None: ...

class RevokeKeyResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class RestrictKeyRequest(_message.Message):
    __slots__ = ("tenant_id", "prefix", "models")
    TENANT_ID_FIELD_NUMBER: _ClassVar[int]
    PREFIX_FIELD_NUMBER: _ClassVar[int]
    MODELS_FIELD_NUMBER: _ClassVar[int]
    tenant_id: str
    prefix: str
    models: _admin_pb2.ModelSet
    def __init__(self, tenant_id: _Optional[str] = ..., prefix: _Optional[str] = ..., models: _Optional[_Union[_admin_pb2.ModelSet, _Mapping]] = ...) -> None: ...

class RestrictKeyResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class SetQuotaRequest(_message.Message):
    __slots__ = ("quota",)
    QUOTA_FIELD_NUMBER: _ClassVar[int]
    quota: _admin_pb2.Quota
    def __init__(self, quota: _Optional[_Union[_admin_pb2.Quota, _Mapping]] = ...) -> None: ...

class SetQuotaResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class DeleteQuotaRequest(_message.Message):
    __slots__ = ("scope",)
    SCOPE_FIELD_NUMBER: _ClassVar[int]
    scope: _admin_pb2.QuotaScope
    def __init__(self, scope: _Optional[_Union[_admin_pb2.QuotaScope, _Mapping]] = ...) -> None: ...

class DeleteQuotaResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListQuotasRequest(_message.Message):
    __slots__ = ("tenant_id", "page_size", "page_token")
    TENANT_ID_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    tenant_id: str
    page_size: int
    page_token: str
    def __init__(self, tenant_id: _Optional[str] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListQuotasResponse(_message.Message):
    __slots__ = ("quotas", "next_page_token")
    QUOTAS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    quotas: _containers.RepeatedCompositeFieldContainer[_admin_pb2.Quota]
    next_page_token: str
    def __init__(self, quotas: _Optional[_Iterable[_Union[_admin_pb2.Quota, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class AddPriceRequest(_message.Message):
    __slots__ = ("price",)
    PRICE_FIELD_NUMBER: _ClassVar[int]
    price: _admin_pb2.Price
    def __init__(self, price: _Optional[_Union[_admin_pb2.Price, _Mapping]] = ...) -> None: ...

class AddPriceResponse(_message.Message):
    __slots__ = ("price",)
    PRICE_FIELD_NUMBER: _ClassVar[int]
    price: _admin_pb2.Price
    def __init__(self, price: _Optional[_Union[_admin_pb2.Price, _Mapping]] = ...) -> None: ...

class ListPricesRequest(_message.Message):
    __slots__ = ("page_size", "page_token")
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    page_size: int
    page_token: str
    def __init__(self, page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListPricesResponse(_message.Message):
    __slots__ = ("prices", "next_page_token")
    PRICES_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    prices: _containers.RepeatedCompositeFieldContainer[_admin_pb2.Price]
    next_page_token: str
    def __init__(self, prices: _Optional[_Iterable[_Union[_admin_pb2.Price, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class UsageFilter(_message.Message):
    __slots__ = ("tenant_id", "first_day", "last_day", "user_id", "key_prefix", "model")
    TENANT_ID_FIELD_NUMBER: _ClassVar[int]
    FIRST_DAY_FIELD_NUMBER: _ClassVar[int]
    LAST_DAY_FIELD_NUMBER: _ClassVar[int]
    USER_ID_FIELD_NUMBER: _ClassVar[int]
    KEY_PREFIX_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    tenant_id: str
    first_day: str
    last_day: str
    user_id: str
    key_prefix: str
    model: str
    def __init__(self, tenant_id: _Optional[str] = ..., first_day: _Optional[str] = ..., last_day: _Optional[str] = ..., user_id: _Optional[str] = ..., key_prefix: _Optional[str] = ..., model: _Optional[str] = ...) -> None: ...

class ListUsageDaysRequest(_message.Message):
    __slots__ = ("filter", "page_size", "page_token")
    FILTER_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    filter: UsageFilter
    page_size: int
    page_token: str
    def __init__(self, filter: _Optional[_Union[UsageFilter, _Mapping]] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListUsageDaysResponse(_message.Message):
    __slots__ = ("days", "next_page_token")
    DAYS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    days: _containers.RepeatedCompositeFieldContainer[_admin_pb2.UsageDay]
    next_page_token: str
    def __init__(self, days: _Optional[_Iterable[_Union[_admin_pb2.UsageDay, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class ExportUsageRequest(_message.Message):
    __slots__ = ("filter", "format", "row")
    FILTER_FIELD_NUMBER: _ClassVar[int]
    FORMAT_FIELD_NUMBER: _ClassVar[int]
    ROW_FIELD_NUMBER: _ClassVar[int]
    filter: UsageFilter
    format: ExportFormat
    row: ExportRow
    def __init__(self, filter: _Optional[_Union[UsageFilter, _Mapping]] = ..., format: _Optional[_Union[ExportFormat, str]] = ..., row: _Optional[_Union[ExportRow, str]] = ...) -> None: ...

class ExportUsageResponse(_message.Message):
    __slots__ = ("text",)
    TEXT_FIELD_NUMBER: _ClassVar[int]
    text: str
    def __init__(self, text: _Optional[str] = ...) -> None: ...

class ListAuditRequest(_message.Message):
    __slots__ = ("tenant_id", "page_size", "page_token")
    TENANT_ID_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    tenant_id: str
    page_size: int
    page_token: str
    def __init__(self, tenant_id: _Optional[str] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListAuditResponse(_message.Message):
    __slots__ = ("entries", "next_page_token")
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    entries: _containers.RepeatedCompositeFieldContainer[_admin_pb2.AuditEntry]
    next_page_token: str
    def __init__(self, entries: _Optional[_Iterable[_Union[_admin_pb2.AuditEntry, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class WatchQueuesRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class WatchQueuesResponse(_message.Message):
    __slots__ = ("queues",)
    QUEUES_FIELD_NUMBER: _ClassVar[int]
    queues: _containers.RepeatedCompositeFieldContainer[_admin_pb2.ModelQueue]
    def __init__(self, queues: _Optional[_Iterable[_Union[_admin_pb2.ModelQueue, _Mapping]]] = ...) -> None: ...

class WatchWorkersRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class WatchWorkersResponse(_message.Message):
    __slots__ = ("workers",)
    WORKERS_FIELD_NUMBER: _ClassVar[int]
    workers: _containers.RepeatedCompositeFieldContainer[_admin_pb2.Worker]
    def __init__(self, workers: _Optional[_Iterable[_Union[_admin_pb2.Worker, _Mapping]]] = ...) -> None: ...

class DrainWorkerRequest(_message.Message):
    __slots__ = ("address",)
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    address: str
    def __init__(self, address: _Optional[str] = ...) -> None: ...

class DrainWorkerResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ResumeWorkerRequest(_message.Message):
    __slots__ = ("address",)
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    address: str
    def __init__(self, address: _Optional[str] = ...) -> None: ...

class ResumeWorkerResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

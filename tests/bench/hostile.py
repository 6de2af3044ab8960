"""Requests that cost their sender nothing: as large as they may be, of as many parts as fit in."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message
from tidegate.v1.chat_service_pb2 import CompleteRequest, CountTokensRequest
from tidegate.v1.turn_pb2 import ROLE_USER, TurnSpec
from tidegate.v1.turn_pb2 import Message as TurnMessage

SIZE = 4 * 1024 * 1024 - 4096

_HI = b'"messages":[{"role":"user","content":"hi"}]'


def _fill(item: bytes, size: int) -> bytes:
    return b",".join([item] * (size // (len(item) + 1)))


def _count_up(size: int) -> bytes:
    return b",".join(b'"%d":1' % number for number in range(size // 12))


def chat_bodies(size: int = SIZE) -> Mapping[str, bytes]:
    """Bodies of POST /v1/chat/completions."""
    tool = b'"tools":[{"type":"function","function":{"name":"a","parameters":{"a":[%b]}}}]'
    schema = b'"response_format":{"type":"json_schema","json_schema":{"name":"a","schema":{"enum":[%b]}}}'
    fields = {
        "messages that are lists": b'"messages":[%b]' % _fill(b"[]", size),
        "messages that are empty": b'"messages":[%b]' % _fill(b"{}", size),
        "messages that are numbers": b'"messages":[%b]' % _fill(b"1", size),
        "parts that are empty": b'"messages":[{"role":"user","content":[%b]}]' % _fill(b"{}", size),
        "parts without text": b'"messages":[{"role":"user","content":[%b]}]' % _fill(b'{"type":"text","text":""}', size),
        "calls that are empty": b'"messages":[{"role":"assistant","tool_calls":[%b]}]' % _fill(b"{}", size),
        "tools that are empty": _HI + b',"tools":[%b]' % _fill(b"{}", size),
        "a large tool": _HI + b"," + tool % _fill(b"{}", size),
        "a large schema": _HI + b"," + schema % _fill(b"1", size),
        "empty stops": _HI + b',"stop":[%b]' % _fill(b'""', size),
        "numbers as stops": _HI + b',"stop":[%b]' % _fill(b"1", size),
        "metadata": _HI + b',"metadata":{"a":[%b]}' % _fill(b"1", size),
        "unknown fields": _HI + b"," + _count_up(size),
        "biases": _HI + b',"logit_bias":{%b}' % _count_up(size),
        "a long text": b'"messages":[{"role":"user","content":"%b"}]' % (b"a" * size),
        "a text of escapes": b'"messages":[{"role":"user","content":"%b"}]' % (b"\\u00e9" * (size // 6)),
        "a text of quotes": b'"messages":[{"role":"user","content":"%b"}]' % (b'\\"' * (size // 2)),
        "what the model is to have said": b'%b,{"role":"assistant","content":"%b"}]' % (_HI[:-1], b"<|im_end|>" * (size // 10)),
    }
    return {name: b'{"model":"test",%b}' % it for name, it in fields.items()} | {"nested lists": b"[" * size}


def completion_bodies(size: int = SIZE) -> Mapping[str, bytes]:
    """Bodies of POST /v1/completions."""
    items = {"numbers": b"1", "texts": b'"a"', "lists": b"[]", "objects": b"{}"}
    return {f"prompts that are {name}": b'{"model":"test","prompt":[%b]}' % _fill(it, size) for name, it in items.items()}


def messages(method: type[Message], size: int = SIZE) -> Mapping[str, bytes]:
    """Serialised requests of a method: each list of the request, filled with empty elements."""
    return {f"{method.DESCRIPTOR.name}, {path}": data for path, data in _list_lists(method, size)}


def long_prompts() -> Mapping[str, bytes]:
    """A prompt of one long message, for each method that takes one."""
    message = TurnMessage(role=ROLE_USER, content="a" * SIZE)
    return {
        "Complete": CompleteRequest(spec=TurnSpec(messages=[message])).SerializeToString(),
        "CountTokens": CountTokensRequest(messages=[message]).SerializeToString(),
    }


def socket_texts(size: int = SIZE) -> Mapping[str, str]:
    """First messages on the WebSocket."""
    start = '{"setup":{},"start":{"turn":{"messages":[%s]}}}'
    return {
        "messages that are empty": start % _fill(b"{}", size).decode(),
        "messages that are lists": start % _fill(b"[]", size).decode(),
        "unknown fields": f"{{{_count_up(size).decode()}}}",
        "nested lists": "[" * size,
        "nested objects": '{"setup":' * (size // 9),
    }


def _list_lists(kind: type[Message], size: int) -> Iterator[tuple[str, bytes]]:
    todo: list[tuple[str, tuple[int, ...], object]] = [("", (), kind.DESCRIPTOR)]
    while todo:
        path, outer, descriptor = todo.pop()
        for field in descriptor.fields:  # type: ignore[attr-defined]  # a descriptor
            name = f"{path}.{field.name}".lstrip(".")
            if field.is_repeated and field.type in (FieldDescriptor.TYPE_MESSAGE, FieldDescriptor.TYPE_STRING):
                yield name, _wrap(outer, (_tag(field.number) + b"\0") * (size // 2 - 64))
            elif field.message_type and len(outer) < 3 and field.message_type.full_name.startswith("tidegate."):
                todo.append((name, (*outer, field.number), field.message_type))


def _wrap(outer: tuple[int, ...], data: bytes) -> bytes:
    for number in reversed(outer):
        data = _tag(number) + _varint(len(data)) + data
    return data


def _tag(number: int) -> bytes:
    return _varint(number << 3 | 2)


def _varint(value: int) -> bytes:
    written = b""
    while value > 127:
        written += bytes((value & 127 | 128,))
        value >>= 7
    return written + bytes((value,))

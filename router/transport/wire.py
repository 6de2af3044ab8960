"""Protobuf's wire format, as far as it tells what a message will cost before it is parsed.

Four megabytes of empty messages become two million objects: hundreds of megabytes, and seconds of whoever looks at each. So the fields of a
message are counted first, and no further than they may be. See protobuf.dev/programming-guides/encoding.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from google.protobuf.descriptor import Descriptor
from google.protobuf.message import DecodeError

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


def has_more_fields(data: bytes, kind: Descriptor, most: int) -> bool:
    """Whether a message has more than `most` fields, with those of the messages in it. Raises DecodeError where it ends too early."""
    todo, count = [(0, len(data), kind)], 0
    try:
        while todo:
            at, end, kind = todo.pop()
            inner = _inner_of(kind)
            while at < end:
                count += 1
                if count > most:
                    return True
                tag, at = _read_varint(data, at)
                size, at = _read_size(data, at, tag & 7)
                if size and (child := inner.get(tag >> 3)):
                    todo.append((at, at + size, child))
                at += size
    except IndexError:
        raise DecodeError from None
    return False


def _read_size(data: bytes, at: int, wire: int) -> tuple[int, int]:
    """How many bytes the value has that begins at `at`, and where these begin."""
    if wire == _BYTES:
        return _read_varint(data, at)
    if wire == _VARINT:
        return 0, _read_varint(data, at)[1]
    return {_FIXED64: 8, _FIXED32: 4}.get(wire, 0), at


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7
        if shift > 63:
            raise DecodeError


@cache
def _inner_of(kind: Descriptor) -> Mapping[int, Descriptor]:
    return {field.number: field.message_type for field in kind.fields if field.message_type}

"""Statuses as exceptions."""

from __future__ import annotations

import pickle

import grpc
import pytest
import tidegate
from google.rpc.error_details_pb2 import ErrorInfo
from google.rpc.status_pb2 import Status
from tidegate import TidegateError
from tidegate.errors import deadline_exceeded, from_rpc_error, stream_lost


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("INVALID_ARGUMENT", "RequestInvalid"),
        ("NOT_FOUND", "RequestInvalid"),
        ("PERMISSION_DENIED", "AccessDenied"),
        ("RESOURCE_EXHAUSTED", "Exhausted"),
        ("UNAVAILABLE", "Unavailable"),
        ("DEADLINE_EXCEEDED", "DeadlineExceeded"),
        ("INTERNAL", "TidegateError"),
    ],
)
def test_an_error_is_of_its_codes_class(code: str, kind: str) -> None:
    """So that programs catch what they can do something about."""
    error = TidegateError(Status(code=grpc.StatusCode[code].value[0], message="words"))
    assert type(error) is getattr(tidegate, kind)
    assert (error.code.name, error.message, error.reason) == (code, "words", "")


def test_errors_of_ours_have_reasons() -> None:
    """As the router's do."""
    assert str(deadline_exceeded()) == "DEADLINE_EXCEEDED DEADLINE_EXCEEDED: the deadline passed before the answer was whole"
    lost = stream_lost("gone")
    assert (lost.reason, lost.retry_after) == ("STREAM_LOST", None)
    assert stream_lost("gone", never_arrived=True).retry_after == 0.0


def test_errors_survive_pickling() -> None:
    """Process pools hand them on."""
    status = Status(code=8, message="busy")
    status.details.add().Pack(ErrorInfo(reason="WORKER_FULL"))
    copy = pickle.loads(pickle.dumps(TidegateError(status)))
    assert (type(copy), copy.reason) == (tidegate.Exhausted, "WORKER_FULL")


def rpc_error(code: grpc.StatusCode, trailing: bytes | None = None) -> grpc.aio.AioRpcError:
    metadata = grpc.aio.Metadata() if trailing is None else grpc.aio.Metadata(("grpc-status-details-bin", trailing))
    return grpc.aio.AioRpcError(code, grpc.aio.Metadata(), metadata, details="words")


def test_the_routers_own_words_are_taken() -> None:
    """Whatever the code is. Details that cannot be read are none."""
    status = Status(code=14)
    status.details.add().Pack(ErrorInfo(reason="DRAINING"))
    assert from_rpc_error(rpc_error(grpc.StatusCode.UNAVAILABLE, status.SerializeToString())).reason == "DRAINING"
    assert from_rpc_error(rpc_error(grpc.StatusCode.UNAVAILABLE, b"\xff")).reason == "UNREACHABLE"


@pytest.mark.parametrize("code", ["UNAVAILABLE", "INTERNAL", "UNKNOWN", "CANCELLED"])
def test_a_failure_that_no_router_told_is_a_broken_connection(code: str) -> None:
    """It is told by whether a stream had been opened."""
    error = rpc_error(grpc.StatusCode[code])
    assert from_rpc_error(error, opened=True).reason == "STREAM_LOST"
    assert from_rpc_error(error).reason == "UNREACHABLE"


def test_other_strangers_are_shown_as_they_are() -> None:
    """A proxy that wants credentials, for example."""
    error = from_rpc_error(rpc_error(grpc.StatusCode.UNAUTHENTICATED))
    assert isinstance(error, tidegate.AccessDenied)
    assert (error.reason, error.message) == ("", "words")

"""gRPC's reflection as version 1, which newer tools ask for first: its messages are those of v1alpha, which the library has."""

from __future__ import annotations

from collections.abc import Sequence

import grpc
from grpc_reflection.v1alpha import reflection
from grpc_reflection.v1alpha.reflection_pb2 import ServerReflectionRequest, ServerReflectionResponse

REFLECTION_V1 = "grpc.reflection.v1.ServerReflection"


def reflection_v1(services: Sequence[str]) -> grpc.GenericRpcHandler:
    """The service, which tells of those with these full names."""
    answer = grpc.stream_stream_rpc_method_handler(
        reflection.aio.ReflectionServicer(services).ServerReflectionInfo,
        request_deserializer=ServerReflectionRequest.FromString,
        response_serializer=ServerReflectionResponse.SerializeToString,
    )
    return grpc.method_handlers_generic_handler(REFLECTION_V1, {"ServerReflectionInfo": answer})

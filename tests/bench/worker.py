"""A worker without Triton's binary: Triton's gRPC face in process, the real model behind it, a scripted engine inside.

What it does of Triton: many requests on a stream, responses echo the request's id, errors as text on an OK stream, an empty final response
is not sent, and a stream that goes cancels all its requests.
"""

from __future__ import annotations

import asyncio
import json
import struct
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import triton_python_backend_utils as pb_utils
from google.protobuf import text_format
from tritonclient.grpc import service_pb2 as triton
from tritonclient.grpc.model_config_pb2 import ModelConfig
from tritonclient.grpc.service_pb2_grpc import GRPCInferenceServiceServicer, add_GRPCInferenceServiceServicer_to_server

from router.text.tokenizer import Tokenizer
from server.build import TEMPLATE
from server.engine.base import Engine, Finish, Request
from server.engine.scripted import Action, Break, Emit, End, ScriptedEngine, Stall, Wait
from server.options import EngineOptions, describe_folder
from server.triton_model import TidegateModel

__all__ = ["Break", "Emit", "End", "Finish", "Stall", "Wait", "Worker"]

CONFIG = TEMPLATE / "tensorrt_llm/config.pbtxt"

_DTYPES = {"INT32": np.int32, "INT64": np.int64, "UINT64": np.uint64, "FP32": np.float32, "BOOL": np.bool_}

Item = str | bytes | Action


@dataclass(slots=True)
class Worker:
    """A scripted worker that listens on `address`.

    `script` is what each new request plays: text or bytes for a step's tokens, or actions. A callable gets the request and gives those.
    """

    folder: Path
    script: Iterable[Item] | Callable[[Request], Iterable[Item]] = ("ok",)
    step_s: float = 0.002
    kv_blocks: int = 2048
    max_sequences: int = 64
    credential: Path | None = None
    tls: grpc.ServerCredentials | None = None
    address: str = ""
    engines: list[ScriptedEngine] = field(default_factory=list)
    _server: grpc.aio.Server | None = None
    _model: TidegateModel | None = None
    _ids: dict[bytes, int] = field(default_factory=dict)

    @property
    def engine(self) -> ScriptedEngine:
        """The engine in force; a broken one is replaced by a new one."""
        return self.engines[-1]

    @property
    def calls(self) -> int:
        """Requests that all engines of this worker took."""
        return sum(engine.calls for engine in self.engines)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Worker]:
        """Serves until left."""
        await self.start()
        try:
            yield self
        finally:
            await self.stop()

    async def start(self) -> None:
        """Starts, on the same port as before if it ran before."""
        self._model = TidegateModel(lambda options: self._build_engine())
        values = {"model_dir": str(self.folder), **({"lane_credential": str(self.credential)} if self.credential else {})}
        config = {"parameters": {name: {"string_value": text} for name, text in values.items()}}
        self._model.initialize({"model_name": "tensorrt_llm", "model_version": "1", "model_config": json.dumps(config)})
        self._server = grpc.aio.server()
        add_GRPCInferenceServiceServicer_to_server(_Front(self._model), self._server)
        wanted = self.address or "127.0.0.1:0"
        port = self._server.add_secure_port(wanted, self.tls) if self.tls else self._server.add_insecure_port(wanted)
        self.address = f"127.0.0.1:{port}"
        await self._server.start()

    async def stop(self) -> None:
        """Cuts all connections and stops the engine."""
        if self._server is None or self._model is None:
            return
        await self._server.stop(None)
        await asyncio.to_thread(self._model.finalize)
        self._server = self._model = None

    def _build_engine(self) -> Engine:
        options = EngineOptions(self.folder, "scripted-model", "scripted", kv_blocks=self.kv_blocks, max_num_seqs=self.max_sequences)
        self.engines.append(ScriptedEngine(describe_folder(options), self._actions, self.step_s))
        return self.engines[-1]

    def _actions(self, request: Request) -> Iterator[Action]:
        items = self.script(request) if callable(self.script) else self.script
        return (Emit(self.tokens_of(item)) if isinstance(item, str | bytes) else item for item in items)

    def tokens_of(self, text: str | bytes) -> tuple[int, ...]:
        """One token for each byte; the test model has them all."""
        if not self._ids:
            self._ids = {piece: at for at, piece in enumerate(Tokenizer.load(self.folder).token_bytes) if len(piece) == 1}
        return tuple(self._ids[bytes((byte,))] for byte in (text.encode() if isinstance(text, str) else text))


class TidegateFront(GRPCInferenceServiceServicer):
    """What Triton tells of our model: its configuration, from the file that Triton loads."""

    async def ModelConfig(self, request: triton.ModelConfigRequest, context: Any) -> triton.ModelConfigResponse:
        return triton.ModelConfigResponse(config=_read_config())


@cache
def _read_config() -> ModelConfig:
    return text_format.Parse(CONFIG.read_text(), ModelConfig())


class _Front(TidegateFront):
    """Triton's streaming inference, in front of one model."""

    def __init__(self, model: TidegateModel) -> None:
        self._model = model

    async def ModelStreamInfer(self, requests: AsyncIterator[triton.ModelInferRequest], context: Any) -> AsyncIterator[Any]:
        stream = _Stream(asyncio.get_running_loop())
        reader = asyncio.create_task(self._read(requests, stream))
        try:
            while (response := await stream.responses.get()) is not None:
                yield response
        finally:
            reader.cancel()
            stream.gone = True

    async def _read(self, requests: AsyncIterator[triton.ModelInferRequest], stream: _Stream) -> None:
        async for request in requests:
            stream.open += 1
            self._model.execute([stream.take(request)])
        stream.half_closed = True
        stream.end_if_done()


class _Stream:
    """One client stream: its open requests and the responses that wait to be sent."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.responses: asyncio.Queue[triton.ModelStreamInferResponse | None] = asyncio.Queue()
        self.open = 0
        self.gone = self.half_closed = False
        self._loop = loop

    def take(self, request: triton.ModelInferRequest) -> pb_utils.InferenceRequest:
        def deliver(response: pb_utils.InferenceResponse | None, final: bool) -> None:
            self._loop.call_soon_threadsafe(self._deliver, request, response, final)

        raw = zip(request.inputs, request.raw_input_contents, strict=True)
        inputs = [pb_utils.Tensor(tensor.name, _values(tensor.datatype, data)) for tensor, data in raw]
        parameters = {key: getattr(value, value.WhichOneof("parameter_choice")) for key, value in request.parameters.items()}
        return pb_utils.InferenceRequest(inputs, parameters, pb_utils.ResponseSender(deliver, lambda: self.gone))

    def end_if_done(self) -> None:
        if self.half_closed and not self.open:
            self.responses.put_nowait(None)

    def _deliver(self, request: triton.ModelInferRequest, response: pb_utils.InferenceResponse | None, final: bool) -> None:
        self.open -= final
        if response is not None:
            self.responses.put_nowait(write_response(request, response))
        elif final and request.parameters["triton_enable_empty_final_response"].bool_param:
            self.responses.put_nowait(write_end(request))
        self.end_if_done()


def write_end(request: triton.ModelInferRequest) -> triton.ModelStreamInferResponse:
    """An empty final response, which Triton sends to who asks for it."""
    message = triton.ModelStreamInferResponse(infer_response=triton.ModelInferResponse(id=request.id))
    message.infer_response.parameters["triton_final_response"].bool_param = True
    return message


def write_response(request: triton.ModelInferRequest, response: pb_utils.InferenceResponse) -> triton.ModelStreamInferResponse:
    """A response as Triton sends it on a stream."""
    message = triton.ModelStreamInferResponse(infer_response=triton.ModelInferResponse(id=request.id))
    if response.error is not None:
        message.error_message = response.error.message
        return message
    for tensor in response.output_tensors:
        values = tensor.as_numpy()
        message.infer_response.outputs.add(name=tensor.name(), shape=values.shape)
        message.infer_response.raw_output_contents.append(_raw(values))
    return message


def _values(datatype: str, raw: bytes) -> np.ndarray[Any, Any]:
    """A tensor's values; of texts there is one at most."""
    return np.array([raw[4:]], dtype=np.object_) if datatype == "BYTES" else np.frombuffer(raw, _DTYPES[datatype])


def _raw(values: np.ndarray[Any, Any]) -> bytes:
    if values.dtype != np.object_:
        return values.tobytes()
    return b"".join(struct.pack("<I", len(text)) + text for text in values)

"""A Triton model without a router: KServe's ModelStreamInfer, one stream per request, with the tensors of TensorRT-LLM's `tensorrt_llm`.

Prompts are token ids: with a tokenizer those of the text, else one for each word, so that shared text is a shared prefix either way.
"""

from __future__ import annotations

import struct
import time
import zlib
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
from tritonclient.grpc import service_pb2 as triton

from loadtest.record import Record
from loadtest.request import Request
from loadtest.targets.stamps import stamp

METHOD = "/inference.GRPCInferenceService/ModelStreamInfer"
FIRST_WORD_ID = 1000
WORD_IDS = 40_000

_CUT_SHORT = (b"cancelled", b"timeout")
"""Finish reasons of answers that are not whole; behind four bytes of length on the wire."""

Encode = Callable[[str], Sequence[int]]

_CHANNEL_OPTIONS = (("grpc.max_receive_message_length", -1), ("grpc.enable_retries", 0), ("grpc.use_local_subchannel_pool", 1))


def encode_words(text: str) -> list[int]:
    """One id for each word, the same for the same word."""
    return [FIRST_WORD_ID + zlib.crc32(word.encode()) % WORD_IDS for word in text.split()]


@dataclass(frozen=True, slots=True)
class KServeOptions:
    """`connections` share the requests: a connection carries about a hundred streams at once well."""

    address: str
    model: str = "tensorrt_llm"
    connections: int = 4
    encode: Encode = encode_words
    exact_length: bool = False


class KServeTarget:
    """A Triton server."""

    def __init__(self, options: KServeOptions, channels: Sequence[grpc.aio.Channel]) -> None:
        self._options = options
        self._next = 0
        parse = stamp(triton.ModelStreamInferResponse.FromString)
        write = triton.ModelInferRequest.SerializeToString
        self._calls: list[Any] = [channel.stream_stream(METHOD, write, parse) for channel in channels]

    @classmethod
    @asynccontextmanager
    async def open(cls, options: KServeOptions) -> AsyncIterator[KServeTarget]:
        """Connects; leaving cancels what runs."""
        channels = [grpc.aio.insecure_channel(options.address, options=_CHANNEL_OPTIONS) for _ in range(options.connections)]
        try:
            yield cls(options, channels)
        finally:
            for channel in channels:
                await channel.close()

    async def run(self, request: Request, record: Record) -> None:
        message = self._message(request)
        self._next = (self._next + 1) % len(self._calls)
        record.send(time.perf_counter())
        call = self._calls[self._next](iter((message,)))
        try:
            async for response in call:
                take_response(record, response.message, response.at)
            record.fail(time.perf_counter(), "STREAM_ENDED")
        except grpc.aio.AioRpcError as error:
            record.fail(time.perf_counter(), error.code().name)
        finally:
            call.cancel()

    def _message(self, request: Request) -> triton.ModelInferRequest:
        message = triton.ModelInferRequest(model_name=self._options.model, id=str(request.number))
        message.parameters["triton_enable_empty_final_response"].bool_param = True
        prompt = [number for part in request.messages for number in self._options.encode(part.content)]
        _add_ids(message, "input_ids", prompt)
        _add_ids(message, "input_lengths", [len(prompt)])
        _add_ids(message, "request_output_len", [request.output_tokens])
        if self._options.exact_length:
            _add_ids(message, "min_tokens", [request.output_tokens])
        return message


def take_response(record: Record, response: triton.ModelStreamInferResponse, at: float) -> None:
    """One response into the record. Triton tells errors as text on a stream that ends with OK."""
    if response.error_message:
        record.fail(at, "TRITON_ERROR")
        return
    answer = response.infer_response
    raw = {tensor.name: data for tensor, data in zip(answer.outputs, answer.raw_output_contents, strict=False)}
    if tokens := raw.get("output_ids"):
        record.arrive(at, tokens=len(tokens) // 4)
    if raw.get("finish_reason", b"")[4:] in _CUT_SHORT:
        record.fail(at, raw["finish_reason"][4:].decode().upper())
    if answer.parameters["triton_final_response"].bool_param:
        record.complete(at)


def load_encoder(path: Path) -> Encode:
    """The encoder of a tokenizer.json, or of the folder that holds one."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(path / "tokenizer.json" if path.is_dir() else path))
    return lambda text: tokenizer.encode(text, add_special_tokens=False).ids


def _add_ids(message: triton.ModelInferRequest, name: str, values: Sequence[int]) -> None:
    message.inputs.add(name=name, datatype="INT32", shape=[len(values)])
    message.raw_input_contents.append(struct.pack(f"<{len(values)}i", *values))

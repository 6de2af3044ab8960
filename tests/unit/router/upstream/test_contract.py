"""The worker contract, both ends of it: what the server writes the router reads, and what the router writes the server reads."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable
from dataclasses import asdict, astuple
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tritonclient.grpc import service_pb2 as triton

from router.model import GenerationRequest, Sampling, WorkerDescription, WorkerFinish, WorkerLoad
from router.upstream import contract
from server.engine.base import Description, Finish, Load, Output, Timing
from server.lanes import Frame, Lane
from server.triton_model import frame_tensors, read_request

DESCRIPTION = Description("small", "scripted", "fast", 2048, 266, (2, 0), 8, 100, 32, isolates_salts=True)
LOAD = Load(1, 2, 30, 40, 32, 600)
DTYPES = {"INT32": np.int32, "INT64": np.int64, "UINT64": np.uint64, "FP32": np.float32}

TOKENS = st.lists(st.integers(0, 2**31 - 1), max_size=5)
OUTPUTS = st.dictionaries(
    st.integers(1, 2**63 - 1),
    st.builds(
        Output,
        number=st.just(1),
        tokens=TOKENS,
        finish=st.sampled_from(Finish),
        timing=st.none() | st.builds(Timing, *[st.integers(0, 2**60)] * 4, st.none() | st.integers(0, 100)),
        error=st.none() | st.text(max_size=20),
    ),
    max_size=4,
)
FLOATS = st.none() | st.floats(width=32, allow_nan=False)
SAMPLINGS = st.builds(
    Sampling,
    temperature=FLOATS,
    top_p=FLOATS,
    top_k=st.none() | st.integers(0, 2**31 - 1),
    seed=st.none() | st.integers(0, 2**64 - 1),
    repetition_penalty=FLOATS,
    presence_penalty=FLOATS,
    frequency_penalty=FLOATS,
)


def to_response(tensors: Iterable[Any]) -> triton.ModelInferResponse:
    """The response that Triton makes of the Python backend's tensors; a text is its length in four bytes and its UTF-8."""
    response = triton.ModelInferResponse()
    for tensor in tensors:
        values = tensor.as_numpy()
        texts = values.dtype == np.object_
        response.outputs.add(name=tensor.name(), shape=values.shape)
        response.raw_output_contents.append(b"".join(struct.pack("<I", len(text)) + text for text in values) if texts else values.tobytes())
    return response


def to_tensors(request: triton.ModelInferRequest) -> dict[str, np.ndarray[Any, Any]]:
    """The tensors that Triton's Python backend makes of a request."""
    raw = zip(request.inputs, request.raw_input_contents, strict=True)
    return {tensor.name: np.frombuffer(data, DTYPES[tensor.datatype]).reshape(tensor.shape) for tensor, data in raw}


def read(frame: Frame) -> contract.Frame:
    return contract.read_frame(to_response(frame_tensors(frame)))


@pytest.mark.parametrize("told", [6, 9])
def test_a_worker_of_another_release_may_tell_less_or_more_of_its_load(told: int) -> None:
    """What it does not tell is zero, and what this router does not know of is passed over."""
    frame = contract.read_frame(respond(GOOD | {"load": struct.pack(f"<{told}q", *range(1, told + 1))}))
    assert (frame.load.active, frame.load.step_us, frame.load.own) == (1, 6, 7 if told > 6 else 0)


@settings(deadline=None)
@given(OUTPUTS)
def test_the_router_reads_what_the_server_writes(outputs: dict[int, Output]) -> None:
    """Each request's tokens, finish code and detail arrive, in order, with the frame's number, the load and the router's part in it."""
    frame = Frame(7, LOAD, 2)
    for request, output in outputs.items():
        frame.add(request, output)
    received = read(frame)
    assert (received.sequence, astuple(received.load)) == (7, (*astuple(LOAD), 2))
    assert [number for number, _ in received.entries] == list(outputs)
    for (_, delta), output in zip(received.entries, outputs.values(), strict=True):
        assert (list(delta.tokens), delta.finish.name) == (output.tokens, output.finish.name)
        if output.finish is not Finish.RUNNING:
            assert delta.refusal == ((output.error or "") if output.finish is Finish.REFUSED else "")
            assert delta.cached_tokens == (output.timing.cached_tokens if output.timing else None)


def test_the_first_frame_describes_the_worker() -> None:
    """The router learns sizes in tokens; later frames describe nothing."""
    lane = Lane(DESCRIPTION)
    first, second = lane.take_frame(LOAD), lane.take_frame(LOAD, even_if_empty=True)
    assert first is not None
    assert second is not None
    assert read(first).description == WorkerDescription("small", "scripted", "fast", 2048, 266, 8, 3200, 32, isolates_salts=True)
    assert read(second).description is None


def test_a_worker_that_does_not_know_salts_is_described() -> None:
    """One of an earlier version does not mention them: it is sent none."""
    told = {key: value for key, value in asdict(DESCRIPTION).items() if key != "isolates_salts"}
    description = read(Frame(1, LOAD, detail=[json.dumps({"description": told})])).description
    assert description == WorkerDescription("small", "scripted", "fast", 2048, 266, 8, 3200, 32)


def test_load_has_the_servers_order() -> None:
    """The figures travel without names."""
    assert [*Load.__dataclass_fields__, "own"] == list(WorkerLoad.__dataclass_fields__)


def test_finish_codes_are_the_servers() -> None:
    """Both ends number them alike."""
    assert {it.name: it.value for it in Finish} == {it.name: it.value for it in WorkerFinish}


def test_a_frame_may_hold_what_this_router_does_not_know() -> None:
    """A newer worker may add tensors and details."""
    frame = Frame(1, LOAD, log_probs=[])
    frame.add(5, Output(1, [8], Finish.END_ID, log_probs=[-0.5]))
    frame.detail.append(json.dumps({"news": []}))
    assert read(frame).entries[0][1].tokens == [8]


def test_kv_events_come_as_the_engine_tells_them() -> None:
    """Beside the details of requests; a frame without any has none."""
    lane = Lane(DESCRIPTION)
    lane.add_kv_events([{"event_id": 7}, {"event_id": 8}])
    first, second = lane.take_frame(LOAD), lane.take_frame(LOAD, even_if_empty=True)
    assert first is not None
    assert second is not None
    assert read(first).kv_events == [{"event_id": 7}, {"event_id": 8}]
    assert not read(second).kv_events


GOOD = {
    "sequence": struct.pack("<q", 1),
    "load": struct.pack("<7q", *range(7)),
    "request": struct.pack("<2q", 1, 2),
    "counts": struct.pack("<2i", 1, 2),
    "output_ids": struct.pack("<3i", 1, 2, 3),
    "finish": b"\x00\x01",
    "detail": struct.pack("<I", 13) + b'{"request":2}',
}


def respond(raw: dict[str, bytes]) -> triton.ModelInferResponse:
    outputs = [triton.ModelInferResponse.InferOutputTensor(name=name) for name in raw]
    return triton.ModelInferResponse(outputs=outputs, raw_output_contents=list(raw.values()))


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("sequence", b""),
        ("load", bytes(55)),
        ("request", struct.pack("<q", 1)),
        ("counts", struct.pack("<2i", 1, 1)),
        ("counts", struct.pack("<2i", 1, 3)),
        ("output_ids", b"\x00"),
        ("finish", b"\x00\x63"),
        ("detail", b"\x01"),
        ("detail", struct.pack("<I", 1) + b"{"),
        ("detail", struct.pack("<I", 2) + b"[]"),
        ("detail", struct.pack("<I", 1) + b"\xff"),
        ("detail", struct.pack("<I", 18) + b'{"description":{}}'),
    ],
    ids=lambda value: value if isinstance(value, str) else value.hex()[:16],
)
def test_what_is_no_frame_is_told_as_such(name: str, data: bytes) -> None:
    """A tensor of the wrong size or content ends the lane in an orderly way, instead of its reader."""
    assert [delta.tokens for _, delta in contract.read_frame(respond(GOOD)).entries] == [[1], [2, 3]]
    with pytest.raises(contract.FrameInvalid):
        contract.read_frame(respond(GOOD | {name: data}))


GOOD_RECEIPT: dict[str, object] = {"account": "x", "tokens": 3, "cached_tokens": 0}
NO_RECEIPTS: list[object] = [
    *(None, True, 5, 0.5, "text", {}, {"account": "x"}, [None], [5], ["text"], [[]], [{}]),
    [GOOD_RECEIPT | {"account": 5}],
    [GOOD_RECEIPT | {"account": None}],
    [GOOD_RECEIPT | {"tokens": "3"}],
    [GOOD_RECEIPT | {"tokens": float("inf")}],
    [GOOD_RECEIPT | {"cached_tokens": []}],
    [{"account": "x", "tokens": 3}],
]


@pytest.mark.parametrize("told", NO_RECEIPTS, ids=repr)
def test_a_receipt_that_is_none_breaks_no_lane(told: object) -> None:
    """The worker keeps it until it is acknowledged, so it would break every lane that follows; those beside it count."""
    good = [{"account": "y", "tokens": 3, "cached_tokens": None}]
    details = [json.dumps({"receipts": it}).encode() for it in (told, good)]
    raw = b"".join(struct.pack("<I", len(it)) + it for it in details)
    assert contract.read_frame(respond(GOOD | {"detail": raw})).receipts == [("y", 3, 0)]


def test_a_detail_that_is_nested_too_deeply_is_no_frame() -> None:
    """Python's reader of JSON gives up with an error of its own."""
    raw = b"[" * 100_000
    with pytest.raises(contract.FrameInvalid):
        contract.read_frame(respond(GOOD | {"detail": struct.pack("<I", len(raw)) + raw}))


@pytest.mark.parametrize("name", sorted(GOOD.keys() - {"detail"}))
def test_a_frame_without_a_tensor_is_invalid(name: str) -> None:
    """Only the detail may be left out."""
    with pytest.raises(contract.FrameInvalid, match="KeyError"):
        contract.read_frame(respond({key: data for key, data in GOOD.items() if key != name}))


@settings(deadline=None)
@given(TOKENS.filter(bool), st.integers(1, 2**31 - 1), SAMPLINGS)
def test_the_server_reads_what_the_router_asks(prompt: list[int], most: int, sampling: Sampling) -> None:
    """Prompt, length and sampling arrive, and what was not given stays so: zero is not unset."""
    message = contract.generate("lane-1", 3, GenerationRequest(prompt, most, sampling))
    asked = read_request(to_tensors(message), {})
    assert (list(asked.prompt), asked.max_new_tokens) == (prompt, most)
    for name in Sampling.__dataclass_fields__:
        assert getattr(asked.sampling, name) == getattr(sampling, name)
    assert (message.parameters["lane"].string_param, message.parameters["request"].int64_param) == ("lane-1", 3)


def test_the_server_reads_whose_prefix_it_is() -> None:
    """The salt is a parameter; without one the prefix is everybody's."""
    message = contract.generate("lane-1", 3, GenerationRequest([1], 1, Sampling(), cache_salt="9f2c"))
    assert read_request(to_tensors(message), {"cache_salt": message.parameters["cache_salt"].string_param}).cache_salt == "9f2c"
    assert "cache_salt" not in contract.generate("lane-1", 3, GenerationRequest([1], 1, Sampling())).parameters


def test_a_generation_is_named_by_its_number() -> None:
    """Triton's errors come back under the request's id, by which the router finds the generation."""
    message = contract.generate("lane-1", 3, GenerationRequest([1], 1, Sampling()))
    assert (message.model_name, message.id) == ("tensorrt_llm", "3")


def test_the_lanes_own_messages() -> None:
    """Attach, acknowledge and cancel name their lane; their ids are no numbers, so that their errors concern the lane."""
    attach, acknowledge, cancel = contract.attach("a"), contract.acknowledge("a", 16), contract.cancel("a", [3, 2**40])
    assert [it.parameters["op"].string_param for it in (attach, acknowledge, cancel)] == ["attach", "ack", "cancel"]
    assert {it.parameters["lane"].string_param for it in (attach, acknowledge, cancel)} == {"a"}
    assert not any(it.id.isdecimal() for it in (attach, acknowledge, cancel))
    assert acknowledge.parameters["sequence"].int64_param == 16
    assert to_tensors(cancel)["request_ids"].tolist() == [3, 2**40]

"""A request's tensors: every one that is not as its contract says is refused by name, and nothing else can come of any bytes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from google.protobuf.message import DecodeError
from hypothesis import given, settings
from hypothesis import strategies as st
from tritonclient.grpc.service_pb2 import InferTensorContents, ModelInferRequest

from router.errors import CallerError, Code
from router.transport.kserve.asked import read_asked
from router.transport.kserve.contracts import TEXT, TOKENS
from router.transport.kserve.tensors import read_inputs, read_outputs
from tests.budget import examples
from tests.unit.router.transport.kserve.requests import TEXT_MODEL, TOKENS_MODEL, pack, request_of, text_of, tokens_of

Edit = Callable[[ModelInferRequest], Any]


def refusal_of(request: ModelInferRequest) -> CallerError:
    with pytest.raises(CallerError) as refused:
        read_inputs(request, TOKENS if request.inputs[0].name == "input_ids" else TEXT)
    return refused.value


def test_values_are_read_flat_with_or_without_the_batch_dimension() -> None:
    """Both forms hold the same; the prompt's says in which the answer is wanted."""
    batched = read_inputs(tokens_of(("seed", "UINT64", [1, 1], [2**64 - 1])), TOKENS)
    plain = request_of(("input_ids", "INT32", [3], [5, 6, 7]), ("request_output_len", "INT32", [1], [16]), ("seed", "UINT64", [1], [1]))
    assert batched.values == {"input_ids": [5, 6, 7], "request_output_len": [16], "seed": [2**64 - 1]}
    assert batched.batched
    assert not read_inputs(plain, TOKENS).batched


@pytest.mark.parametrize(
    ("name", "datatype", "shape", "contents", "values"),
    [
        ("input_ids", "INT32", [1, 3], {"int_contents": [5, 6, 7]}, [5, 6, 7]),
        ("streaming", "BOOL", [1, 1], {"bool_contents": [True]}, [True]),
        ("seed", "UINT64", [1], {"uint64_contents": [9]}, [9]),
        ("temperature", "FP32", [1, 1], {"fp32_contents": [0.5]}, [0.5]),
        ("guided_decoding_guide", "BYTES", [1, 1], {"bytes_contents": ["é".encode()]}, ["é"]),
    ],
)
def test_typed_contents_are_read(name: str, datatype: str, shape: list[int], contents: dict[str, Any], values: list[Any]) -> None:
    """Each data type from its own member."""
    request = ModelInferRequest()
    request.inputs.add(name=name, datatype=datatype, shape=shape, contents=InferTensorContents(**contents))
    for rest in ("input_ids", "request_output_len"):
        if rest != name:
            request.inputs.add(name=rest, datatype="INT32", shape=[1], contents=InferTensorContents(int_contents=[1]))
    assert read_inputs(request, TOKENS).values[name] == values


@pytest.mark.parametrize(
    ("tensor", "words"),
    [
        (("seed", "INT64", [1, 1], b"\1" * 8), "must be UINT64"),
        (("seed", "UINT64", [1, 2], b"\1" * 16), r"must have the shape \[1, 1\]"),
        (("seed", "UINT64", [], b"\1" * 8), r"must have the shape \[1, 1\]"),
        (("seed", "UINT64", [-1, 1], b"\1" * 8), "must have a batch size of 1"),
        (("seed", "UINT64", [2, 1], b"\1" * 16), "must have a batch size of 1"),
        (("seed", "UINT64", [1, 1], b"\1" * 7), "fraction of a value"),
        (("seed", "UINT64", [1, 1], b""), "holds 0 values, and its shape is for 1"),
        (("seed", "UINT64", [1, 1], b"\1" * 16), "holds 2 values, and its shape is for 1"),
        (("stop_words_list", "INT32", [1, 2, -1], b""), r"must have the shape \[1, 2, -1\]"),
        (("guided_decoding_guide", "BYTES", [1, 1], b"\5\0\0\0four"), "ends within a text"),
        (("guided_decoding_guide", "BYTES", [1, 1], b"\1\0"), "ends within a text"),
        (("guided_decoding_guide", "BYTES", [1, 1], b"\1\0\0\0\xff"), "must be UTF-8"),
        (("guided_decoding_guide", "BYTES", [1, 1], pack("BYTES", ["a", "b"])), "holds 2 values"),
    ],
)
def test_a_wrong_tensor_is_named(tensor: tuple[str, str, Sequence[int], bytes], words: str) -> None:
    """With what would be right."""
    request = tokens_of()
    name, datatype, shape, raw = tensor
    request.inputs.add(name=name, datatype=datatype, shape=shape)
    request.raw_input_contents.append(raw)
    error = refusal_of(request)
    assert (error.code, error.violations[0].field) == (Code.INVALID_ARGUMENT, name)
    with pytest.raises(CallerError, match=words):
        raise error


@pytest.mark.parametrize(
    ("edit", "field", "words"),
    [
        (lambda it: it.inputs.pop(), "raw_input_contents", "one buffer for each"),
        (lambda it: it.raw_input_contents.pop(), "request_output_len", "has no buffer"),
        (lambda it: it.inputs.add(name="output_ids"), "output_ids", "no such input"),
        (lambda it: it.inputs.add(name="a" * 65), "tensor 2", "no such input"),
        (lambda it: it.inputs.add(name="a\nb"), "tensor 2", "no such input"),
        (lambda it: it.inputs.add(name="input_ids"), "input_ids", "must be given once"),
        (lambda it: it.inputs[0].contents.int_contents.append(1), "input_ids", "either contents or a raw buffer"),
        (lambda it: it.inputs[0].parameters["shared_memory_region"].MergeFromString(b""), "input_ids", "no shared memory"),
    ],
)
def test_a_wrong_message_is_explained(edit: Edit, field: str, words: str) -> None:
    """Buffers and names that do not fit together; a name that might harm a log is not repeated."""
    request = tokens_of()
    edit(request)
    error = refusal_of(request)
    assert error.violations[0].field == field
    assert words in error.message


def test_everything_that_is_missing_is_told_at_once() -> None:
    """A request without inputs lacks each that must be given."""
    with pytest.raises(CallerError) as refused:
        read_inputs(ModelInferRequest(), TOKENS)
    assert [it.field for it in refused.value.violations] == ["input_ids", "request_output_len"]


def test_contents_of_another_type_are_refused() -> None:
    """Numbers of a wider type would be cut in silence."""
    request = ModelInferRequest()
    request.inputs.add(name="input_ids", datatype="INT32", shape=[1], contents=InferTensorContents(int64_contents=[1]))
    assert refusal_of(request).message == "input_ids: must be in int_contents"


@pytest.mark.parametrize(("name", "only", "other"), [("beam_width", 1, 2), ("num_return_sequences", 1, 0)])
def test_what_would_change_nothing_is_taken(name: str, only: int, other: int) -> None:
    """NVIDIA's own client sends such tensors always; another value is refused by name."""
    assert read_inputs(tokens_of((name, "INT32", [1, 1], [only])), TOKENS)
    error = refusal_of(tokens_of((name, "INT32", [1, 1], [other])))
    assert (error.code, error.reason, error.violations[0].field) == (Code.UNIMPLEMENTED, "OPTION_UNSUPPORTED", name)


def test_outputs_are_those_listed() -> None:
    """None listed means all."""
    request = tokens_of()
    assert read_outputs(request, TOKENS) == frozenset(TOKENS.outputs)
    request.outputs.add(name="output_ids")
    assert read_outputs(request, TOKENS) == {"output_ids"}


@pytest.mark.parametrize(
    ("edit", "code"),
    [
        (lambda it: it.outputs.add(name="text_output"), Code.INVALID_ARGUMENT),
        (lambda it: it.outputs.add(name="output_ids").parameters["classification"].MergeFromString(b""), Code.UNIMPLEMENTED),
        (lambda it: it.outputs.add(name="output_ids").parameters["shared_memory_region"].MergeFromString(b""), Code.UNIMPLEMENTED),
    ],
)
def test_outputs_that_cannot_be_given_are_refused(edit: Edit, code: Code) -> None:
    """By name."""
    request = tokens_of()
    edit(request)
    with pytest.raises(CallerError) as refused:
        read_outputs(request, TOKENS)
    assert (refused.value.code, refused.value.violations[0].field) == (code, request.outputs[0].name)


NAMES = st.sampled_from([*TOKENS.inputs, *TEXT.inputs, "", "nothing"])
TYPES = st.sampled_from(["BOOL", "INT32", "UINT64", "FP32", "BYTES", "INT64", ""])
SIZES = st.sampled_from([0, 1, 2, 3, -1, 2**62])
RAW = st.one_of(st.binary(max_size=24), st.sampled_from([pack("BYTES", ["json"]), pack("INT32", [1, 2, 1, -1]), b"\xff" * 8]))
CONTENTS = st.builds(
    InferTensorContents,
    bool_contents=st.lists(st.booleans(), max_size=2),
    int_contents=st.lists(st.integers(-(2**31), 2**31 - 1), max_size=2),
    uint64_contents=st.lists(st.integers(0, 2**64 - 1), max_size=2),
    bytes_contents=st.lists(st.binary(max_size=4), max_size=2),
)


@st.composite
def requests(draw: st.DrawFn) -> ModelInferRequest:
    """Requests that begin well, and go on in any way."""
    request = draw(st.sampled_from([tokens_of(), text_of(), ModelInferRequest()]))
    for _ in range(draw(st.integers(0, 3))):
        given = request.inputs.add(name=draw(NAMES), datatype=draw(TYPES), shape=draw(st.lists(SIZES, max_size=3)))
        if draw(st.booleans()):
            given.contents.CopyFrom(draw(CONTENTS))
        request.raw_input_contents.extend(draw(st.lists(RAW, max_size=2)))
    for name in draw(st.lists(st.sampled_from(["priority", "timeout", "triton_enable_empty_final_response", "x"]), max_size=2)):
        request.parameters[name].MergeFromString(draw(st.sampled_from([b"", b"\x08\x01", b"\x10\x07", b"\x1a\x01a"])))
    return request


@settings(max_examples=examples(4), deadline=None)
@given(request=requests(), served=st.sampled_from([TOKENS_MODEL, TEXT_MODEL]))
def test_nothing_but_a_turn_or_a_refusal_comes_of_any_tensors(request: ModelInferRequest, served: Any) -> None:
    """Whatever their names, types, shapes, values and parameters are; nothing of a caller's own text is in the refusal."""
    try:
        asked = read_asked(request, served)
    except CallerError as error:
        assert error.violations
        assert len(error.message) < 200
    else:
        assert (asked.turn.input_ids is None) == (served is TEXT_MODEL)


@settings(max_examples=examples(2), deadline=None)
@given(data=st.binary(max_size=64), at=st.integers(0, 200))
def test_nothing_but_a_turn_or_a_refusal_comes_of_broken_messages(data: bytes, at: int) -> None:
    """A whole request's bytes, overwritten somewhere; what the decoder itself refuses never comes here."""
    whole = tokens_of(
        ("stop_words_list", "INT32", [1, 2, 2], [1, 2, 1, 2]), ("guided_decoding_guide", "BYTES", [1], ["x"])
    ).SerializeToString()
    try:
        request = ModelInferRequest.FromString(whole[:at] + data + whole[at + len(data) :])
        read_asked(request, TOKENS_MODEL)
    except (DecodeError, CallerError):
        pass

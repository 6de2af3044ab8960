"""The models that Triton callers see: their names, what is told of them, and how they are counted."""

from __future__ import annotations

import pytest
from tritonclient.grpc.model_config_pb2 import TYPE_STRING

from router.errors import CallerError
from router.transport.kserve.catalogue import Catalogue
from router.transport.kserve.contracts import TEXT, TOKENS, configure, describe
from router.transport.kserve.statistics import Statistics


@pytest.mark.parametrize(
    ("name", "model", "contract"),
    [
        ("tensorrt_llm", "first", TOKENS),
        ("", "first", TOKENS),
        ("tensorrt_llm_bls", "first", TEXT),
        ("first", "first", TOKENS),
        ("second", "second", TOKENS),
        ("second/ensemble", "second", TEXT),
        ("ensemble", "ensemble", TOKENS),
    ],
)
def test_names_stand_for_models(catalogue: Catalogue, name: str, model: str, contract: object) -> None:
    """NVIDIA's for the default one, unless a model is called so; each model's own name for itself."""
    served = catalogue.find(name)
    assert (served.model, served.contract) == (model, contract)
    assert served.end_ids == (2, 0)


@pytest.mark.parametrize(("name", "version"), [("third", ""), ("first", "2"), ("first/", ""), ("/ensemble", "")])
def test_other_names_are_unknown(catalogue: Catalogue, name: str, version: str) -> None:
    """And so are versions that Triton would not have."""
    assert catalogue.find("first", "1")
    with pytest.raises(CallerError) as unknown:
        catalogue.find(name, version)
    assert unknown.value.reason == "MODEL_UNKNOWN"


@pytest.mark.parametrize("contract", [TOKENS, TEXT])
def test_metadata_and_configuration_agree(contract: object) -> None:
    """On every tensor; shapes have the batch dimension, dims do not, and what must be given is not optional."""
    told, config = describe("a", contract), configure("a", contract)  # type: ignore[arg-type]
    for tensors, configured in ((told.inputs, config.input), (told.outputs, config.output)):
        assert [(it.name, list(it.shape)) for it in tensors] == [(it.name, [-1, *it.dims]) for it in configured]
    assert {it.name for it in config.input if not it.optional} in ({"input_ids", "request_output_len"}, {"text_input", "max_tokens"})
    assert (config.max_batch_size, config.model_transaction_policy.decoupled) == (1, True)
    assert {it.data_type == TYPE_STRING for it in config.input if it.name.startswith("guided")} == {True}


def test_requests_are_counted_as_triton_counts_them() -> None:
    """A failed one has no success; one that no worker took has no inference; the parts of computing have one count."""
    statistics = Statistics(["a", "b"])
    statistics.record("a", 0.0, 0.0, failed=False)
    statistics.record("a", 0.0, 0.0, failed=True)
    statistics.record("a", 0.0, None, failed=True)
    (told,) = statistics.tell(["a"]).model_stats
    stats = told.inference_stats
    assert (stats.success.count, stats.fail.count, stats.queue.count, told.inference_count, told.execution_count) == (1, 2, 3, 2, 2)
    assert {stats.compute_input.count, stats.compute_infer.count, stats.compute_output.count} == {2}
    assert stats.compute_infer.ns > 0
    assert [it.inference_count for it in statistics.tell(["b", "a"]).model_stats] == [0, 2]

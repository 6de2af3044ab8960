"""Every setting of the stock `tensorrtllm` backend (TensorRT-LLM 1.2.1), under the names of NVIDIA's own template, and what goes with what.

A default here is a decision of ours; where there is none, TensorRT-LLM's applies. The place of each in config.pbtxt is in
templates/stock/tensorrt_llm/config.pbtxt.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from server.settings import Setting, SettingInvalid, Value, matching, number, one_of, path, switch, whole

_GROUPS = r"\d+(,\d+)*(;\d+(,\d+)*)*"
_TREE = r"\{\d+(,\d+)*\}(,\{\d+(,\d+)*\})*"
_FLOATS = one_of("TYPE_FP16", "TYPE_FP32", "TYPE_BF16")

STOCK_SETTINGS: Mapping[str, Setting] = {
    # Triton's side. The queue is the executor's own, too: with 0 it has no bound.
    "triton_backend": Setting(one_of("tensorrtllm", "python"), "tensorrtllm"),
    "triton_max_batch_size": Setting(whole(1)),
    "decoupled_mode": Setting(switch, True),
    "max_queue_delay_microseconds": Setting(whole(0), 0),
    "max_queue_size": Setting(whole(0), 1024),
    "instance_count": Setting(whole(1), 1),
    "force_cpu_only_input_tensors": Setting(one_of("yes", "no"), "no"),
    "logits_datatype": Setting(one_of("TYPE_FP16", "TYPE_FP32")),
    "encoder_input_features_data_type": Setting(_FLOATS, "TYPE_FP16"),
    "prompt_embedding_table_data_type": Setting(_FLOATS, "TYPE_FP16"),
    # The engine and how its requests are batched.
    "batching_strategy": Setting(one_of("inflight_fused_batching", "inflight_batching", "V1", "v1"), "inflight_fused_batching"),
    "engine_dir": Setting(path),
    "encoder_engine_dir": Setting(path),
    "executor_worker_path": Setting(path, "/opt/tritonserver/backends/tensorrtllm/trtllmExecutorWorker"),
    "max_beam_width": Setting(whole(1), 1),
    "batch_scheduler_policy": Setting(one_of("guaranteed_no_evict", "max_utilization"), "guaranteed_no_evict"),
    "enable_chunked_context": Setting(switch, True),
    "exclude_input_in_output": Setting(switch, True),
    "normalize_log_probs": Setting(switch),
    # KV cache.
    "enable_kv_cache_reuse": Setting(switch, True),
    "kv_cache_free_gpu_mem_fraction": Setting(number(0, 1), 0.9),
    "max_tokens_in_paged_kv_cache": Setting(whole(1)),
    "kv_cache_host_memory_bytes": Setting(whole(0)),
    "kv_cache_onboard_blocks": Setting(switch),
    "cross_kv_cache_fraction": Setting(number(0, 1)),
    "max_attention_window_size": Setting(matching(r"\d+(,\d+)*", "4096 or 4096,1024")),
    "sink_token_length": Setting(whole(0)),
    # Periods and statistics.
    "cancellation_check_period_ms": Setting(whole(1)),
    "stats_check_period_ms": Setting(whole(1)),
    "recv_poll_period_ms": Setting(whole(0)),
    "iter_stats_max_iterations": Setting(whole(0)),
    "request_stats_max_iterations": Setting(whole(0)),
    # Devices and processes.
    "gpu_device_ids": Setting(matching(_GROUPS, "0,1;2,3")),
    "participant_ids": Setting(matching(_GROUPS, "1,2;3,4")),
    "num_nodes": Setting(whole(1)),
    "gpu_weights_percent": Setting(number(0, 1)),
    # Kernels.
    "enable_trt_overlap": Setting(switch),
    "multi_block_mode": Setting(switch),
    "enable_context_fmha_fp32_acc": Setting(switch),
    "cuda_graph_mode": Setting(switch),
    "cuda_graph_cache_size": Setting(whole(0)),
    # Decoding.
    "decoding_mode": Setting(one_of("top_k", "top_p", "top_k_top_p", "beam_search", "medusa", "redrafter", "lookahead", "eagle")),
    "medusa_choices": Setting(matching(_TREE, "{0,0},{0,1}")),
    "eagle_choices": Setting(matching(_TREE, "{0,0},{0,1}")),
    "lookahead_window_size": Setting(whole(1)),
    "lookahead_ngram_size": Setting(whole(1)),
    "lookahead_verification_set_size": Setting(whole(1)),
    "speculative_decoding_fast_logits": Setting(switch),
    "guided_decoding_backend": Setting(one_of("xgrammar")),
    "tokenizer_dir": Setting(path),
    "xgrammar_tokenizer_info_path": Setting(path),
    # Adapters.
    "lora_cache_optimal_adapter_size": Setting(whole(1)),
    "lora_cache_max_adapter_size": Setting(whole(1)),
    "lora_cache_gpu_memory_fraction": Setting(number(0, 1)),
    "lora_cache_host_memory_bytes": Setting(whole(0)),
    "lora_prefetch_dir": Setting(path),
}

Values = Mapping[str, Value]

_LOOKAHEAD = ("lookahead_window_size", "lookahead_ngram_size", "lookahead_verification_set_size")
_BUILT_AS = {"medusa": "medusa", "redrafter": "explicit_draft_tokens", "lookahead": "lookahead_decoding", "eagle": "eagle"}
"""Decoding modes that need an engine built for them."""


def check_stock(values: Values, ranks: int) -> None:
    """What settings demand of each other, and of an engine with `ranks` GPUs. Raises SettingInvalid."""
    for text, is_broken in _RULES:
        if is_broken(values):
            raise SettingInvalid(text)
    _check_groups(values, ranks)


def _check_groups(values: Values, ranks: int) -> None:
    instances = int(values["instance_count"])
    groups = {name: str(values[name]).split(";") for name in ("gpu_device_ids", "participant_ids") if name in values}
    if instances > 1 and not groups:
        raise SettingInvalid("instance_count: more than one instance needs gpu_device_ids, or participant_ids")
    for name, lists in groups.items():
        if len(lists) != instances or any(len(ids.split(",")) != ranks for ids in lists):
            raise SettingInvalid(f"{name}: must list {ranks} for each of {instances} instances, as tp × pp and instance_count say")


def _is_fused(values: Values) -> bool:
    return str(values["batching_strategy"]).startswith("inflight")


def _lacks_paging(values: Values) -> bool:
    return values["kv_cache_type"] != "paged" or values["use_paged_context_fmha"] != "enable"


_RULES: tuple[tuple[str, Callable[[Values], object]], ...] = (
    (
        "batching_strategy: in-flight batching needs kv_cache_type=paged and remove_input_padding=enable",
        lambda v: _is_fused(v) and (v["kv_cache_type"], v["remove_input_padding"]) != ("paged", "enable"),
    ),
    ("enable_chunked_context: needs in-flight batching", lambda v: v["enable_chunked_context"] and not _is_fused(v)),
    (
        "enable_chunked_context: needs kv_cache_type=paged and use_paged_context_fmha=enable",
        lambda v: v["enable_chunked_context"] and _lacks_paging(v),
    ),
    (
        "enable_kv_cache_reuse: needs kv_cache_type=paged and use_paged_context_fmha=enable",
        lambda v: v["enable_kv_cache_reuse"] and _lacks_paging(v),
    ),
    (
        "max_num_tokens: must be at least max_input_len, or enable_chunked_context=true",
        lambda v: not v["enable_chunked_context"] and int(v["max_num_tokens"]) < int(v["max_input_len"]),
    ),
    ("max_input_len: must not exceed max_seq_len", lambda v: int(v["max_input_len"]) > int(v["max_seq_len"])),
    ("cross_kv_cache_fraction: needs encoder_engine_dir", lambda v: "cross_kv_cache_fraction" in v and "encoder_engine_dir" not in v),
    (
        "decoding_mode: beam_search needs max_beam_width above 1",
        lambda v: v.get("decoding_mode") == "beam_search" and v["max_beam_width"] == 1,
    ),
    (
        f"decoding_mode: lookahead needs {', '.join(_LOOKAHEAD)}; they need it",
        lambda v: len([name for name in _LOOKAHEAD if name in v]) != (3 if v.get("decoding_mode") == "lookahead" else 0),
    ),
    ("medusa_choices: needs decoding_mode=medusa", lambda v: "medusa_choices" in v and v.get("decoding_mode") != "medusa"),
    ("eagle_choices: needs decoding_mode=eagle", lambda v: "eagle_choices" in v and v.get("decoding_mode") != "eagle"),
    (
        f"decoding_mode: needs speculative_decoding_mode: {', '.join(f'{mode} {built}' for mode, built in _BUILT_AS.items())}",
        lambda v: (mode := str(v.get("decoding_mode"))) in _BUILT_AS and v.get("speculative_decoding_mode") != _BUILT_AS[mode],
    ),
    ("speculative_decoding_mode: needs max_draft_len", lambda v: "speculative_decoding_mode" in v and not v.get("max_draft_len")),
    (
        "speculative_decoding_fast_logits: needs participant_ids",
        lambda v: v.get("speculative_decoding_fast_logits") and "participant_ids" not in v,
    ),
    (
        "guided_decoding_backend: needs xgrammar_tokenizer_info_path, or tokenizer_dir with triton_backend=python",
        lambda v: (
            "guided_decoding_backend" in v
            and {"tensorrtllm": "xgrammar_tokenizer_info_path", "python": "tokenizer_dir"}[str(v["triton_backend"])] not in v
        ),
    ),
    ("tokenizer_dir: only triton_backend=python reads it", lambda v: "tokenizer_dir" in v and v["triton_backend"] != "python"),
    (
        "lora_cache_optimal_adapter_size: must not exceed lora_cache_max_adapter_size",
        lambda v: int(v.get("lora_cache_optimal_adapter_size", 8)) > int(v.get("lora_cache_max_adapter_size", 64)),
    ),
    (
        "lora_target_modules: needs lora_plugin",
        lambda v: "lora_target_modules" in v and v.get("lora_plugin", "disable") == "disable",
    ),
    (
        "logits_datatype: must agree with logits_dtype",
        lambda v: (v["logits_datatype"] == "TYPE_FP16") != (v["logits_dtype"] == "float16"),
    ),
)

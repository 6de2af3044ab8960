"""The bare OpenVINO GenAI loop, as the yardstick of `make bench-engine`: no Triton, no router, no lanes, same scheduler settings.

A process of its own, driven by lines of JSON: `{"prompts": [[id, …], …], "max_tokens": n}` in, `{"tokens": n, "seconds": s}` out.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import openvino

from server.engine.base import Request
from server.engine.openvino import generation_config, load_pipeline
from server.options import EngineOptions, describe_folder


def run(pipeline: Any, first: int, prompts: list[list[int]], max_tokens: int, end_ids: tuple[int, ...]) -> int:
    """Generates for all prompts at once; returns the number of tokens."""
    config = generation_config(Request(0, [1], max_tokens), end_ids)
    tensors = [openvino.Tensor(np.asarray([prompt], dtype=np.int64)) for prompt in prompts]
    running = [pipeline.add_request(first + at, tensor, config) for at, tensor in enumerate(tensors)]
    tokens = 0
    while pipeline.has_non_finished_requests():
        pipeline.step()
        for handle in running:
            while handle.can_read():
                tokens += len(handle.read()[0].generated_ids)
    return tokens


def main() -> None:
    """Serves its standard input."""
    options = EngineOptions(Path(sys.argv[1]), "bare", max_num_seqs=int(sys.argv[2]))
    end_ids = describe_folder(options).end_ids
    pipeline, number = load_pipeline(options), 0
    run(pipeline, number, [[1] * 32], 2, end_ids)
    for line in sys.stdin:
        asked = json.loads(line)
        number += 1000
        started = time.perf_counter()
        tokens = run(pipeline, number, asked["prompts"], asked["max_tokens"], end_ids)
        print(json.dumps({"tokens": tokens, "seconds": time.perf_counter() - started}), flush=True)


if __name__ == "__main__":
    main()

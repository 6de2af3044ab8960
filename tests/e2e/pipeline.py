"""The library under the CPU engine, given grammars as they are."""

from __future__ import annotations

from typing import Any

import numpy as np
import openvino
import openvino_genai

from server.engine.openvino import OpenVinoEngine


class Pipeline:
    """Answers grammars in batches."""

    def __init__(self, engine: OpenVinoEngine) -> None:
        self._pipeline = engine._pipeline
        self._tokenizer = self._pipeline.get_tokenizer()
        self._prompt = self._tokenizer.encode("<|im_start|>user\nDescribe something.<|im_end|>\n<|im_start|>assistant\n").input_ids
        self._requests = 1_000_000  # the engine's own ids are below

    def answer(self, grammars: list[str | None], most: int) -> list[str]:
        """One hot answer, with a seed of its own, for each grammar, all in one batch; those that `most` tokens cut short are incomplete."""
        handles = [self._add(grammar, most) for grammar in grammars]
        tokens: list[list[int]] = [[] for _ in handles]
        while self._pipeline.has_non_finished_requests():
            self._pipeline.step()
            for handle, ids in zip(handles, tokens, strict=True):
                while handle.can_read():
                    ids.extend(handle.read()[0].generated_ids)
        return [self._tokenizer.decode(ids) for ids in tokens]

    def _add(self, grammar: str | None, most: int) -> Any:
        self._requests += 1
        config = openvino_genai.GenerationConfig(max_new_tokens=most, do_sample=True, temperature=1.2, rng_seed=self._requests)
        config.eos_token_id = self._tokenizer.get_eos_token_id()
        config.stop_token_ids = {config.eos_token_id}
        if grammar is not None:
            config.structured_output_config = openvino_genai.StructuredOutputConfig(grammar=grammar)
        return self._pipeline.add_request(self._requests, openvino.Tensor(np.array(self._prompt.data)), config)

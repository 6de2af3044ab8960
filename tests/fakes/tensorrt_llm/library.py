"""The package as a value, for a script and a release."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from . import llmapi, lora_helper
from .arguments import SamplingParams
from .script import Script, count_up


def build_library(script: Script = count_up, release: str = "1.3") -> Any:
    """What `import tensorrt_llm` gives, release 1.2 or 1.3, its requests answered by `script(prompt)`. `made` lists the LLMs."""
    made: list[llmapi.BaseLLM] = []
    bound = {"script": staticmethod(script), "made": made}
    library = SimpleNamespace(SamplingParams=SamplingParams, llmapi=llmapi, lora_helper=lora_helper, made=made)
    library.LLM = type("LLM", (llmapi.LLM12 if release == "1.2" else llmapi.LLM,), bound)
    if release == "1.2":
        library._tensorrt_engine = SimpleNamespace(LLM=type("LLM", (llmapi.TensorRtLLM,), bound))
    return library

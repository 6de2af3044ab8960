"""A strict stand-in for the package tensorrt_llm, which needs a GPU: the part of it that our engine uses, and how that part misbehaves.

Arguments are checked by name and type, more strictly than the library does it. The executor plays scripts (script.py) with the library's
own behaviour around them, as the sources of 1.2 and 1.3 have it. Imported as a package it is 1.3 and counts up; `build_library` in
library.py gives the same names for another script or release.
"""

from __future__ import annotations

from . import llmapi, lora_helper
from .llmapi import LLM, SamplingParams

__all__ = ["LLM", "SamplingParams", "llmapi", "lora_helper"]

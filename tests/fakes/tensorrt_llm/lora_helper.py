"""As `tensorrt_llm.lora_helper`."""

from __future__ import annotations

from dataclasses import field
from pathlib import Path

from pydantic import ConfigDict
from pydantic.dataclasses import dataclass


@dataclass(config=ConfigDict(extra="forbid", strict=True))
class LoraConfig:
    """Which modules adapters change is read from one adapter; the library asserts that it is one."""

    lora_dir: list[str] = field(default_factory=list)
    lora_ckpt_source: str = "hf"
    max_lora_rank: int = 64
    lora_target_modules: list[str] = field(default_factory=list)
    max_loras: int | None = None
    max_cpu_loras: int | None = None

    def __post_init__(self) -> None:
        assert len(self.lora_dir) == 1, "Expecting only a single lora dir"
        assert Path(self.lora_dir[0]).is_dir()

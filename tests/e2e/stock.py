"""A stock worker: the real Triton with the stock model's own configuration, a script in the engine's place."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from server.build import render_repository
from server.engine_build import STOCK, plan_stock
from server.engine_commands import Checkpoint
from server.launch import Triton
from server.triton_options import TritonOptions

MODEL = Path(__file__).parent / "models/stock_tensorrt_llm/model.py"
GUIDED = {"guided_decoding_backend": "xgrammar", "tokenizer_dir": "/model"}
MAX_INPUT = 100
MAX_SEQUENCE = 200


@dataclass(frozen=True, slots=True)
class StockWorker:
    """Its repository, and the folder in the engine's place."""

    repository: Path
    engine: Path

    @classmethod
    def prepare(cls, folder: Path, model: Path) -> StockWorker:
        """Renders the repository that `tidegate engine build` makes for the stock backend in Python, and puts the script's player in."""
        engine = folder / "engine"
        engine.mkdir()
        (engine / "config.json").write_text(json.dumps({"max_input_len": MAX_INPUT, "max_seq_len": MAX_SEQUENCE}))
        wanted = Checkpoint(model, "llama", MAX_SEQUENCE, 1, 1, "auto", "none", Path("/app/examples"))
        plan = plan_stock(wanted, folder, {"triton_backend": "python", "engine_dir": str(engine), **GUIDED})
        repository = render_repository(STOCK, plan.repository, plan.values)
        shutil.copy(MODEL, repository / "tensorrt_llm/1/model.py")
        return cls(repository, engine)

    async def start(self, port: int = 0, trace_url: str | None = None) -> Triton:
        """Starts Triton on a gRPC port; 0 takes a free one."""
        return await Triton.start(TritonOptions(self.repository, grpc_port=port, trace_url=trace_url))

    def play(self, deltas: Sequence[Sequence[int]], **script: Any) -> None:
        """What requests that come from now on are answered."""
        (self.engine / "script.json").write_text(json.dumps({"deltas": [list(delta) for delta in deltas], **script}))

    def log(self, event: str) -> list[dict[str, Any]]:
        """What the model noted, oldest first."""
        path = self.engine / "log.jsonl"
        entries = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
        return [entry for entry in entries if entry["event"] == event]

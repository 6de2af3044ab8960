"""`tidegate engine build`: what a GPU machine needs to serve a model: an engine or checkpoint, and the model repository for Triton.

Two kinds. `llm-api` is Tidegate's own Triton model with TensorRT-LLM's LLM API inside, which runs a checkpoint as it is. `stock` is the C++
backend that NVIDIA ships up to Triton 26.07, which runs engines built by trtllm-build. Either way it first makes a plan, which `--dry-run`
prints and anything else carries out: the commands in order, then the repository, which appears whole or not at all.

In NVIDIA's container, which has no `tidegate` command, it is `python3 -m server.engine_build build`; it needs nothing that is not there.
"""

from __future__ import annotations

import argparse
import json
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tidegate.parser import Parser

from server.build import CONFIG_NAME, TEMPLATE, fill_placeholders, find_placeholders, render_repository
from server.engine_commands import BUILD_SETTINGS, DTYPES, QUANTIZATIONS, QUANTIZE_SETTINGS, Checkpoint, Command, build, convert, quantize
from server.options import OptionInvalid, read_options
from server.settings import Setting, SettingInvalid, Value, name_and_value, read_settings, require_known, to_text, whole
from server.stock_settings import STOCK_SETTINGS, check_stock

ROOT = Path(__file__).parents[1]
STOCK = ROOT / "server/templates/stock"
EVENT_BUFFER = 1024
"""KV cache events that wait to be taken: more than a step makes. The router follows the cache by them."""


class BuildFailed(Exception):
    """Nothing could be built. ``reason`` is a stable UPPER_SNAKE word; the message says what to do about it."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Plan:
    """Commands to run, then a repository to render from `template` with `values`; `start` is how to serve it."""

    commands: tuple[Command, ...]
    template: Path
    values: Mapping[str, str]
    repository: Path
    start: Command


def plan_stock(wanted: Checkpoint, output: Path, given: Mapping[str, str]) -> Plan:
    """An engine for the stock backend; with a setting `engine_dir` it exists already. Raises SettingInvalid."""
    table = {**STOCK_SETTINGS, **BUILD_SETTINGS, **QUANTIZE_SETTINGS}
    values = _complete(wanted, output, read_settings(table, given))
    check_stock(values, wanted.ranks)
    checkpoint, engine = output / "checkpoint", Path(str(values["engine_dir"]))
    commands = (convert(wanted, checkpoint, values), build(checkpoint, engine, values))
    known = find_placeholders(STOCK)
    texts = {name: to_text(value) for name, value in values.items() if name in known}
    repository = output / "model_repository"
    return Plan(() if "engine_dir" in given else commands, STOCK, texts, repository, _start_stock(repository, wanted.ranks))


def _complete(wanted: Checkpoint, output: Path, values: dict[str, Value]) -> dict[str, Value]:
    """Adds what follows from the model, or from other settings."""
    values = {"max_seq_len": wanted.context, "engine_dir": str(output / "engine"), **values}
    follow: dict[str, Value] = {
        "max_input_len": values["max_seq_len"],
        "triton_max_batch_size": values["max_batch_size"],
        "logits_datatype": "TYPE_FP16" if values["logits_dtype"] == "float16" else "TYPE_FP32",
        # NVIDIA's advice: FP8 matrices are faster without the plugin.
        "gemm_plugin": "disable" if wanted.quantization == "fp8" else "auto",
    }
    return follow | values


def _start_stock(repository: Path, ranks: int) -> Command:
    if ranks == 1:
        return ("tritonserver", f"--model-repository={repository}", "--disable-auto-complete-config")
    return ("python3", "/app/scripts/launch_triton_server.py", f"--world_size={ranks}", f"--model_repo={repository}")


def plan_llm_api(wanted: Checkpoint, output: Path, given: Mapping[str, str]) -> Plan:
    """Our own model on the checkpoint, quantized first if wanted. Raises SettingInvalid."""
    ours = find_placeholders(TEMPLATE)
    require_known(given, ours | QUANTIZE_SETTINGS.keys())
    quantizing = wanted.quantization != "none"
    checkpoint = output / "checkpoint"
    values = {
        "engine": "tensorrt_llm",
        "model_dir": str(checkpoint if quantizing else wanted.model),
        "model_name": wanted.model.name,
        "tensor_parallel_size": str(wanted.tp),
        "pipeline_parallel_size": str(wanted.pp),
        "event_buffer_max_size": str(EVENT_BUFFER),
        **{name: text for name, text in given.items() if name in ours},
    }
    _check_ours(values)
    settings = read_settings(QUANTIZE_SETTINGS, {name: given[name] for name in QUANTIZE_SETTINGS if name in given}) if quantizing else {}
    commands = (quantize(wanted, checkpoint, settings, "hf"),) if quantizing else ()
    repository = output / "model_repository"
    start = ("env", f"PYTHONPATH={ROOT}", "tritonserver", f"--model-repository={repository}", "--disable-auto-complete-config")
    return Plan(commands, TEMPLATE, values, repository, start)


def _check_ours(values: Mapping[str, str]) -> None:
    try:
        read_options({name: {"string_value": text} for name, text in values.items()})
    except OptionInvalid as error:
        raise SettingInvalid(str(error)) from None


PLANS = {"llm-api": plan_llm_api, "stock": plan_stock}


def read_checkpoint(arguments: argparse.Namespace) -> Checkpoint:
    """What the command line and the model's folder say. Raises BuildFailed or SettingInvalid."""
    path = arguments.model / "config.json"
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
        text = config.get("text_config", config)
        model_type, context = str(text["model_type"]), int(text["max_position_embeddings"])
    except (OSError, ValueError, LookupError, AttributeError) as error:
        message = f"{path} must be the configuration of a language model in Hugging Face layout ({type(error).__name__})"
        raise BuildFailed("MODEL_INVALID", message) from error
    sizes = read_settings({"tp": Setting(whole(1)), "pp": Setting(whole(1))}, {"tp": arguments.tp, "pp": arguments.pp})
    form = {name: getattr(arguments, name) for name in ("dtype", "quantization", "examples")}
    return Checkpoint(arguments.model.absolute(), model_type, context, int(sizes["tp"]), int(sizes["pp"]), **form)


def describe(plan: Plan) -> Iterator[str]:
    """The plan for reading, line by line; commands can be pasted into a shell."""
    yield "# Commands" if plan.commands else "# No commands"
    yield from map(shlex.join, plan.commands)
    for config in sorted(plan.template.glob(f"*/{CONFIG_NAME}")):
        yield f"\n# {plan.repository / config.relative_to(plan.template)}"
        yield fill_placeholders(config.read_text(encoding="utf-8"), plan.values).rstrip()
    yield "\n# Start"
    yield shlex.join(plan.start)


def carry_out(plan: Plan) -> None:
    """Runs the commands, then writes the repository. Raises BuildFailed."""
    if plan.repository.exists():
        raise BuildFailed("OUTPUT_EXISTS", f"{plan.repository} exists; choose another --output")
    plan.repository.parent.mkdir(parents=True, exist_ok=True)
    for command in plan.commands:
        _run(command)
    render_repository(plan.template, plan.repository, plan.values)


def _run(command: Command) -> None:
    print(shlex.join(command), flush=True)
    try:
        subprocess.run(command, check=True)
    except FileNotFoundError:
        message = f"{command[0]} is not here: run this in NVIDIA's container tritonserver:26.07-trtllm-python-py3, or look with --dry-run"
        raise BuildFailed("TOOL_MISSING", message) from None
    except subprocess.CalledProcessError as error:
        raise BuildFailed("COMMAND_FAILED", f"{command[0]} ended with {error.returncode}; its output is above") from None


def main(argv: Sequence[str] | None = None) -> int:
    """Run ``tidegate engine``; return the exit status."""
    arguments = _parse(argv)
    try:
        plan = PLANS[arguments.kind](read_checkpoint(arguments), arguments.output.absolute(), dict(arguments.set))
        if arguments.dry_run:
            print(*describe(plan), sep="\n")
        else:
            carry_out(plan)
            print(f"start it with: {shlex.join(plan.start)}")
    except (BuildFailed, SettingInvalid) as error:
        print(f"{error.reason}: {error}", file=sys.stderr)
        return 1
    return 0


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    engine = Parser(prog="tidegate engine", description="Prepare engines for GPU machines.")
    parser = engine.add_subparsers(required=True).add_parser("build", help="make an engine and the model repository that serves it")
    parser.add_argument("--kind", choices=sorted(PLANS), default="llm-api", help="Tidegate's model on the LLM API, or NVIDIA's C++ backend")
    parser.add_argument("--model", type=Path, required=True, help="folder in Hugging Face layout")
    parser.add_argument("--output", type=Path, required=True, help="folder for checkpoint, engine and model_repository")
    parser.add_argument("--tp", default="1", metavar="N", help="GPUs that share each layer")
    parser.add_argument("--pp", default="1", metavar="N", help="groups of layers on GPUs of their own")
    parser.add_argument("--dtype", choices=DTYPES, default="auto", help="of what is not quantized")
    parser.add_argument("--quantization", choices=QUANTIZATIONS, default="none", help="done by ModelOpt, which needs a GPU")
    parser.add_argument("--examples", type=Path, default=Path("/app/examples"), help="TensorRT-LLM's examples, which hold the converters")
    parser.add_argument("--set", action="append", default=[], type=name_and_value, metavar="NAME=VALUE", help="a setting; all are checked")
    parser.add_argument("--dry-run", action="store_true", help="print the commands and files instead")
    return engine.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main())

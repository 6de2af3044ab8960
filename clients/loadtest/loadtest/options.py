"""The options of `tidegate bench run`, and what they mean."""

from __future__ import annotations

import argparse
import random
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager
from itertools import repeat
from pathlib import Path

from tidegate.credentials import Credentials, Tls

from loadtest.campaign import Campaign, Stage
from loadtest.result import Load, Slo
from loadtest.runner import Patience
from loadtest.targets import Target
from loadtest.targets.converse import PLAINTEXT, ConverseOptions, ConverseTarget
from loadtest.targets.kserve import KServeOptions, KServeTarget, encode_words, load_encoder
from loadtest.targets.openai import OpenAIOptions, OpenAITarget
from loadtest.workloads.arrivals import arrival_times, parse_rate
from loadtest.workloads.synthetic import Shape, Span, make_requests
from loadtest.workloads.traces import Replay, read_trace, replay


def add_run_options(parser: argparse.ArgumentParser) -> None:
    """Declares them."""
    parser.add_argument("target", help="tidegate://HOST:PORT, http://HOST:PORT or triton://HOST:PORT")
    parser.add_argument("--name", default="", help="what tables and pictures call it (default: the target)")
    parser.add_argument("--out", type=Path, help="JSON result")
    parser.add_argument("--report", type=Path, help="HTML report")
    parser.add_argument("--png", type=Path, help="folder for the report's pictures as PNG")
    _add_target_options(parser.add_argument_group("target"))
    _add_load_options(parser.add_argument_group("load: give one of --rate, --concurrency and --trace"))
    _add_shape_options(parser.add_argument_group("requests"))
    _add_measure_options(parser.add_argument_group("measures"))


def _add_target_options(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--model", default="", help="model name (default: the router's default, or tensorrt_llm)")
    group.add_argument("--streams", type=int, default=1, help="tidegate: streams that share the turns; triton: connections (default 1)")
    group.add_argument("--tls", action="store_true", help="tidegate: encrypt")
    group.add_argument("--tls-ca", type=Path, metavar="FILE", help="tidegate: encrypt; PEM of who may sign the router's certificate")
    group.add_argument("--header", action="append", default=[], metavar="NAME=VALUE", help="{tenant} is replaced by the tenant's name")
    group.add_argument("--exact", action="store_true", help="make answers exactly as long as asked for")
    group.add_argument("--tokenizer", type=Path, help="triton: tokenizer.json; without it each word is one made-up id")


def _add_load_options(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--rate", action="append", default=[], help="open loop, requests/s: 20, 5..50 or 5,10,20; repeat it for a sweep")
    group.add_argument("--burst", type=float, default=1.0, help="coefficient of variation of gaps: 0 even, 1 Poisson, 3 bursts (default 1)")
    group.add_argument("--concurrency", default="", help="closed loop, callers: 8, or 8,32,128 for a sweep")
    group.add_argument("--trace", type=Path, help="Mooncake .jsonl or Azure .csv")
    group.add_argument("--speed", type=float, default=1.0, help="trace: times faster (default 1)")
    group.add_argument("--scale", type=float, default=1.0, help="trace: lengths times this (default 1)")
    group.add_argument("--limit", type=int, help="trace: only so many requests")
    group.add_argument("--duration", type=float, default=30.0, help="seconds of a run, warm-up included; not of a trace (default 30)")
    group.add_argument("--warm-up", type=float, default=0.0, help="seconds that are not counted (default 0)")
    group.add_argument("--seed", type=int, default=0)


def _add_shape_options(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--input", default="100", help="prompt tokens: 100 or 50..200 (default 100)")
    group.add_argument("--output", default="64", help="answer tokens (default 64)")
    group.add_argument("--system", type=int, default=0, help="tokens of each tenant's system prompt (default none)")
    group.add_argument("--turns", default="1", help="turns of a conversation (default 1)")
    group.add_argument("--think", type=float, default=1.0, help="mean seconds between an answer and the next turn (default 1)")
    group.add_argument("--tenants", type=int, default=1, help="number of tenants (default 1)")
    group.add_argument("--zipf", type=float, default=1.1, help="exponent of the tenants' shares (default 1.1)")


def _add_measure_options(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--slo-ttft", type=float, default=0.5, help="seconds to the first token of a good answer (default 0.5)")
    group.add_argument("--slo-tpot", type=float, default=0.05, help="seconds per further token of a good answer (default 0.05)")
    group.add_argument("--stall", type=float, default=30.0, help="seconds of silence after which a request is given up (default 30)")
    group.add_argument("--timeout", type=float, default=600.0, help="seconds after which a request is given up (default 600)")
    group.add_argument("--process", action="append", default=[], metavar="NAME=PID", help="tell this process's CPU and memory; repeatable")


def read_campaign(arguments: argparse.Namespace) -> Campaign:
    """Checks what was given and builds what it asks for. Raises ValueError."""
    if sum(map(bool, (arguments.rate, arguments.concurrency, arguments.trace))) != 1:
        raise ValueError("give one of --rate, --concurrency and --trace")
    return Campaign(
        name=arguments.name or arguments.target,
        target=arguments.target,
        open_target=lambda: open_target(arguments),
        stages=list(make_stages(arguments)),
        workload=describe_workload(arguments),
        slo=Slo(arguments.slo_ttft, arguments.slo_tpot),
        patience=Patience(arguments.stall, arguments.timeout),
        warm_up_s=arguments.warm_up,
        processes=[read_process(text) for text in arguments.process],
    )


def read_process(text: str) -> tuple[str, int]:
    """`NAME=PID`. Raises ValueError."""
    name, _, pid = text.partition("=")
    if not name or not pid.isdecimal():
        raise ValueError(f"{text}: a process is NAME=PID")
    return name, int(pid)


def read_credentials(arguments: argparse.Namespace) -> Credentials:
    """How the router is reached; keys are in headers."""
    return Credentials(tls=Tls(arguments.tls_ca)) if arguments.tls or arguments.tls_ca else PLAINTEXT


def open_target(arguments: argparse.Namespace) -> AbstractAsyncContextManager[Target]:
    """By the address's scheme. Raises ValueError."""
    scheme, _, address = arguments.target.partition("://")
    headers = {name: value for name, _, value in (text.partition("=") for text in arguments.header)}
    match scheme:
        case "tidegate":
            options = ConverseOptions(address, arguments.streams, arguments.model, headers, arguments.exact, read_credentials(arguments))
            return ConverseTarget.open(options)
        case "triton":
            encode = load_encoder(arguments.tokenizer) if arguments.tokenizer else encode_words
            model = arguments.model or "tensorrt_llm"
            return KServeTarget.open(KServeOptions(address, model, arguments.streams, encode, arguments.exact))
        case "http" | "https":
            return OpenAITarget.open(OpenAIOptions(arguments.target, arguments.model, headers, arguments.exact))
    raise ValueError(f"{arguments.target}: must begin with tidegate://, http://, https:// or triton://")


def make_stages(arguments: argparse.Namespace) -> Iterator[Stage]:
    """The runs; each has a seed of its own, so that none finds another's prompts in a cache. Raises ValueError."""
    if arguments.trace:
        yield _trace_stage(arguments)
    shape = read_shape(arguments)
    for seed, text in enumerate(arguments.rate, arguments.seed):
        segments = parse_rate(text, arguments.duration)
        mean = sum(segment.arrivals for segment in segments) / arguments.duration
        times = arrival_times(segments, arguments.burst, random.Random(seed))
        yield Stage(Load("open", mean), make_requests(shape, times, seed), arguments.duration)
    for seed, callers in enumerate(filter(None, arguments.concurrency.split(",")), arguments.seed):
        yield Stage(Load("closed", int(callers)), make_requests(shape, repeat(0.0), seed), arguments.duration)


def read_shape(arguments: argparse.Namespace) -> Shape:
    """What synthetic requests look like. Raises ValueError."""
    return Shape(
        input_tokens=Span.parse(arguments.input),
        output_tokens=Span.parse(arguments.output),
        system_tokens=arguments.system,
        tenants=arguments.tenants,
        zipf=arguments.zipf,
        turns=Span.parse(arguments.turns),
        think_s=arguments.think,
    )


def describe_workload(arguments: argparse.Namespace) -> dict[str, str]:
    """What tells workloads apart, for the result file."""
    common = ("duration", "warm_up", "seed", "tenants", "exact")
    shape = ("input", "output", "system", "turns")
    names = {
        "trace": ("trace", "speed", "scale", "limit", *common),
        "rate": ("rate", "burst", *shape, *common),
        "concurrency": ("concurrency", *shape, *common),
    }
    kind = next(name for name in names if getattr(arguments, name))
    told = {name: getattr(arguments, name) for name in names[kind]}
    return {name: " ".join(value) if isinstance(value, list) else str(value) for name, value in told.items() if value is not None}


def _trace_stage(arguments: argparse.Namespace) -> Stage:
    options = Replay(arguments.speed, arguments.scale, arguments.limit, arguments.tenants, arguments.zipf, arguments.seed)
    rows = list(read_trace(arguments.trace))[: arguments.limit]
    if not rows:
        raise ValueError(f"{arguments.trace}: holds no request")
    seconds = rows[-1].at / arguments.speed
    return Stage(Load("open", len(rows) / seconds if seconds else len(rows)), replay(rows, options), None)

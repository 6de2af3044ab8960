"""`tidegate up`: the whole system on one machine, for trying it: model, Triton, router, and a trace from caller to engine.

It asks a first question and shows the answer as it streams. Without `--demo` it then stays up until Ctrl-C; with it, it shows the answer's
trace, prints one line and exits.
"""

from __future__ import annotations

import asyncio
import signal
import sys
import time
from argparse import Namespace
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.trace import SpanKind, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from tidegate import Client, TidegateError, user
from tidegate.parser import Parser

from server.assets.catalogue import DEFAULT_MODEL
from server.assets.folder import AssetError
from server.collector import Collector, SpanRecord, render_waterfall
from server.installation import LaunchError
from server.options import PROFILES
from server.ports import reserve_ports
from server.stack import Stack, StackFailed, StackOptions, run_stack

QUESTION = "What is the capital of France?"
SERVICES = ("tidegate-client", "tidegate-router", "triton", "tidegate-engine")
TRACE_COMPLETE_S = 5.0
TRACE_ATTEMPTS = 3


@dataclass(frozen=True, slots=True)
class Answer:
    """A first answer: its text, time to first token in seconds, tokens, and the trace it left."""

    text: str
    ttft_s: float
    tokens: int
    trace_id: str


async def ask(stack: Stack, question: str) -> Answer:
    """Asks one question under a client span, printing the answer as it comes."""
    provider = TracerProvider(resource=Resource.create({"service.name": "tidegate-client"}))
    provider.add_span_processor(SimpleSpanProcessor(OTLPSpanExporter(stack.collector.url)))
    span = provider.get_tracer("tidegate.up").start_span("ask", kind=SpanKind.CLIENT)
    headers: dict[str, str] = {}
    TraceContextTextMapPropagator().inject(headers, set_span_in_context(span))
    try:
        text, ttft, tokens = await _stream_answer(stack.router, question, headers)
    finally:
        span.end()
        await asyncio.to_thread(provider.shutdown)
    return Answer(text, ttft, tokens, f"{span.get_span_context().trace_id:032x}")


async def ask_traced(stack: Stack, question: str) -> tuple[Answer, list[SpanRecord]]:
    """Asks until a trace is whole, three times at most: Triton (2.51) makes no span for about one request in fifty.

    Raises StackFailed naming the services that it has.
    """
    for _ in range(TRACE_ATTEMPTS):
        answer = await ask(stack, question)
        spans = await wait_for_trace(stack.collector, answer.trace_id)
        if is_whole(spans, SERVICES):
            return answer, spans
    raise StackFailed(f"the trace is not whole; it has spans from {', '.join(sorted({span.service for span in spans}))}")


def is_whole(spans: Sequence[SpanRecord], services: Sequence[str]) -> bool:
    """Whether the spans form one tree, with some of every service."""
    ids = {span.span_id for span in spans}
    return sum(span.parent_id not in ids for span in spans) == 1 and {span.service for span in spans} >= set(services)


async def wait_for_trace(collector: Collector, trace_id: str, services: Sequence[str] = SERVICES) -> list[SpanRecord]:
    """The trace's spans, waiting until it is one tree with spans of every service, or until `TRACE_COMPLETE_S` has passed."""
    deadline = time.monotonic() + TRACE_COMPLETE_S
    while True:
        spans = collector.spans(trace_id)
        if is_whole(spans, services) or time.monotonic() > deadline:
            return spans
        await asyncio.sleep(0.1)


def main(argv: Sequence[str] | None = None) -> int:
    """Returns the process's exit code."""
    parser = Parser(prog="tidegate up", description="Run a model, Triton and the router on this machine.")
    parser.add_argument("--model", default=DEFAULT_MODEL, help="name, folder, .gguf file or Hugging Face id (default %(default)s)")
    parser.add_argument("--profile", choices=PROFILES, default="fast")
    parser.add_argument("--port", type=int, default=8500, help="the router's gRPC port (default %(default)s)")
    parser.add_argument("--http-port", type=int, default=8502, help="the router's port for OpenAI's API (default %(default)s)")
    parser.add_argument("--metrics-port", type=int, default=8501, help="the router's /metrics port (default %(default)s)")
    parser.add_argument("--worker", default="", help="gRPC address of a Triton that runs already; none is started then")
    parser.add_argument("--store", default="~/.local/share/tidegate", help="folder of tenants, keys and usage (default %(default)s)")
    parser.add_argument("--demo", action="store_true", help="ask one question, print one line, exit")
    arguments = parser.parse_args(argv)
    store = "" if arguments.demo else arguments.store
    options = StackOptions(
        arguments.model, arguments.profile, arguments.port, arguments.metrics_port, arguments.worker, store, http_port=arguments.http_port
    )
    try:
        _require_free(arguments)
        print(f"Starting {arguments.model}, Triton and the router: half a minute, and longer the first time.", flush=True)
        return asyncio.run(_demo(options) if arguments.demo else _run(options))
    except (AssetError, LaunchError, StackFailed, TidegateError) as error:
        print(f"tidegate up: {error}", file=sys.stderr)
        return 1


def _require_free(arguments: Namespace) -> None:
    """What cannot be used is said at once, not when model and Triton are up. Raises StackFailed, which names the option."""
    for name in ("port", "http_port", "metrics_port"):
        try:
            with reserve_ports("127.0.0.1", (getattr(arguments, name),)):
                pass  # the router does not take over one that is held
        except LaunchError as error:
            raise StackFailed(f"{error}, or 0 for a free one, with --{name.replace('_', '-')}") from None
    if arguments.demo:
        return
    store = Path(arguments.store).expanduser()
    try:
        store.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StackFailed(f"{store} cannot be made ({error.strerror}): choose another folder with --store") from None


async def _demo(options: StackOptions) -> int:
    async with run_stack(options) as stack:
        answer, spans = await ask_traced(stack, QUESTION)
        print(f"\n{render_waterfall(spans)}\n")
    services = ", ".join(sorted({span.service for span in spans}))
    text = " ".join(answer.text.split())
    figures = f"ttft {answer.ttft_s * 1000:.0f} ms | {answer.tokens} tokens | trace {answer.trace_id} {len(spans)} spans"
    print(f"demo ok: {text} | {figures} from {services}")
    return 0


async def _run(options: StackOptions) -> int:
    stopping = asyncio.Event()
    async with run_stack(options) as stack:
        await ask(stack, QUESTION)
        print(_how_to_talk(stack), flush=True)
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, stopping.set)
        await _wait_for_end(stack, stopping)
    return 0


async def _wait_for_end(stack: Stack, stopping: asyncio.Event) -> None:
    """Returns when asked to stop. Raises StackFailed when a part ends by itself: nothing is restarted silently."""
    waits = {"the router": stack.router_process.wait(), "": stopping.wait()}
    if stack.triton:
        waits["Triton"] = stack.triton.wait()
    tasks = {asyncio.create_task(wait): name for name, wait in waits.items()}
    done, pending = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in pending:
        task.cancel()
    for task in done:
        if tasks[task]:
            raise StackFailed(f"{tasks[task]} ended with code {task.result()}; see its log above")


def _how_to_talk(stack: Stack) -> str:
    triton = f"\n  Triton    {stack.triton.endpoints.grpc} (gRPC), http://{stack.triton.endpoints.metrics}/metrics" if stack.triton else ""
    return f"""
Tidegate is up. Ctrl-C stops it.

  chat      .venv/bin/tidegate chat --target {stack.router}
  gRPC      {stack.router}  (tidegate.v1.ChatService, with reflection and health)
{show_openai(stack.http)}
  metrics   http://{stack.metrics}/metrics{triton}
  a key     .venv/bin/tidegate router {stack.config} --new-operator-key admin
"""


def show_openai(http: str) -> str:
    """What to paste so that OpenAI's client talks to this door, which lets callers in whatever key the client has."""
    question = f'messages=[{{"role": "user", "content": "{QUESTION}"}}]'
    return f"""\
  OpenAI    export OPENAI_BASE_URL=http://{http}/v1
            export OPENAI_API_KEY=local
            python -c 'import openai; print(openai.OpenAI().chat.completions.create(model="", {question}).choices[0].message.content)'
            (http://{http}/docs tells what it takes; the client is there after pip install openai)"""


async def _stream_answer(target: str, question: str, headers: Mapping[str, str]) -> tuple[str, float, int]:
    print(f"\n> {question}")
    started, ttft, text = time.monotonic(), 0.0, ""
    # Without the key that TIDEGATE_KEY may hold: it may be another router's.
    async with Client(target, key="") as client, client.session(headers=headers) as session:
        turn = await session.start(user(question), max_output_tokens=64)
        async for event in turn:
            if event.HasField("text_delta"):
                ttft = ttft or time.monotonic() - started
                text += event.text_delta.text
                print(event.text_delta.text, end="", flush=True)
    print()
    return text, ttft, turn.usage.completion_tokens if turn.usage else 0

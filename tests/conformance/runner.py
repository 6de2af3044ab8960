"""The runner of the Python SDK: plays a case of the table, and tells what was not as the table says."""

from __future__ import annotations

import asyncio
import json
import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

from tidegate import Client, Event, FinishReason, TidegateError, user

from tests.conformance.table import Case, spell

_OPTIONS = ("model", "stop", "max_output_tokens", "max_rounds")
_LEFT_OUT = ("queued", "logprobs")


class Left(Exception):
    """The case leaves the scope of its session or client."""


@dataclass
class City:
    """What structured cases ask for."""

    name: str
    population: int


class Control:
    """The harness's control endpoint, for one run of a case."""

    def __init__(self, url: str) -> None:
        self._url = url
        self.marker = ""
        self.traceparent = ""

    async def begin(self, case: str) -> None:
        answer = await self._post("begin", {"case": case})
        self.marker, self.traceparent = answer["marker"], answer["traceparent"]

    async def act(self, action: Case) -> None:
        await self._post("do", {**action, "marker": self.marker})

    async def end(self) -> list[str]:
        faults: list[str] = (await self._post("end", {"marker": self.marker}))["faults"]
        return faults

    async def _post(self, path: str, body: Case) -> Case:
        return await asyncio.to_thread(self._send, urllib.request.Request(f"{self._url}/{path}", json.dumps(body).encode()))

    def _send(self, request: urllib.request.Request) -> Case:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return dict(json.load(answer))


@dataclass
class Seen:
    """What the caller saw of a turn."""

    turn: Any = None
    error: TidegateError | None = None
    deltas: list[str] = field(default_factory=list)
    kinds: list[str] = field(default_factory=list)
    value: Any = None
    ran: list[Case] = field(default_factory=list)
    took_s: float = 0.0

    def take(self, event: Event) -> None:
        kind = event.WhichOneof("event") or ""
        self.kinds += [kind] if kind not in _LEFT_OUT else []
        self.deltas += [event.text_delta.text] if kind == "text_delta" else []

    def faults(self, wanted: Case) -> Iterator[str]:
        """What is not as the table says."""
        seen: Case = {
            "text": "".join(self.deltas),
            "order": [kind for kind, _ in groupby(self.kinds)],
            "finish": FinishReason.Name(self.turn.finish_reason).removeprefix("FINISH_REASON_") if self.turn else None,
            "completion_tokens": self.turn.usage.completion_tokens if self.turn and self.turn.usage else None,
            "error": describe_error(self.error),
            "value": vars(self.value) if self.value else None,
            "ran": self.ran,
        }
        wanted = {"error": None, **wanted}
        if isinstance(wanted["error"], dict):
            wanted["error"] = {"fields": [], **wanted["error"]}
        for name, value in wanted.items():
            match name:
                case "text_starts" if not seen["text"].startswith(value):
                    yield f"text: {seen['text']!r} does not start with {value!r}"
                case "within_s" if self.took_s > value:
                    yield f"took {self.took_s} s, not {value} s"
                case "text" if seen["text"] != spell(value):
                    yield f"text: {seen['text']!r}, not {spell(value)!r}"
                case "order" | "finish" | "completion_tokens" | "error" | "value" | "ran" if seen[name] != value:
                    yield f"{name}: {seen[name]}, not {value}"


def describe_error(error: TidegateError | None) -> Case | None:
    """An error in the table's words."""
    if error is None:
        return None
    retryable = error.retry_after is not None
    return {"code": error.code.name, "reason": error.reason, "retryable": retryable, "fields": list(error.fields)}


async def play(case: Case, target: str, control: Control, make_client: Callable[..., Any] = Client) -> list[str]:
    """Plays a case with a client of this kind; what was not as the table says."""
    await control.begin(case["name"])
    for action in case.get("before", ()):
        await control.act(action)
    seen = [Seen() for _ in case["turns"]]
    try:
        async with make_client(target, **_client_options(case, control)) as client:
            if "session" in case:
                async with client.session(**case["session"]) as session:
                    for turn, one in zip(case["turns"], seen, strict=True):
                        await _play_turn(turn, one, control, session.start)
            else:
                for turn, one in zip(case["turns"], seen, strict=True):
                    await _play_turn(turn, one, control, client.run_tools if "tools" in turn else client.chat)
    except Left:
        pass
    faults = [
        f"turn {at}: {fault}" for at, (turn, one) in enumerate(zip(case["turns"], seen, strict=True)) for fault in one.faults(turn["see"])
    ]
    return faults + await control.end()


def _client_options(case: Case, control: Control) -> dict[str, Any]:
    turn = case["turns"][0]
    return {
        **({"resume_for": case["resume_for_s"]} if "resume_for_s" in case else {}),
        **({"retries": turn["retries"]} if "retries" in turn else {}),
        **({"headers": {"traceparent": control.traceparent}} if "trace" in turn else {}),
    }


async def _play_turn(turn: Case, seen: Seen, control: Control, ask: Any) -> None:
    for action in turn.get("before", ()):
        await control.act(action)
    options = {name: turn[name] for name in _OPTIONS if name in turn}
    options |= {"deadline": turn["deadline_s"]} if "deadline_s" in turn else {}
    options |= {"into": City} if "into" in turn else {}
    options |= {"tools": [_TOOLS[name](seen.ran) for name in turn["tools"]]} if "tools" in turn else {}
    began = time.monotonic()
    try:
        asked = ask(user(control.marker + spell(turn["text"])), **options)
        seen.turn = await asked if asyncio.iscoroutine(asked) else asked
        if "into" in turn:
            seen.value = await seen.turn.value()
        elif turn.get("via") == "text":
            seen.deltas.append(await seen.turn.text())
        else:
            await _read(seen.turn, seen, control, list(turn.get("actions", ())))
    except TidegateError as error:
        seen.error = error
    seen.took_s = time.monotonic() - began


async def _read(turn: Any, seen: Seen, control: Control, actions: list[Case]) -> None:
    async for event in turn:
        seen.take(event)
        if actions and is_due(actions[0], seen):
            action = actions.pop(0)
            await control.act(action)
            match action["do"]:
                case "cancel":
                    await turn.cancel()
                case "break":
                    break
                case "leave":
                    raise Left


def is_due(action: Case, seen: Seen) -> bool:
    """Whether so many deltas or events have been seen."""
    if "after_events" in action:
        return len(seen.kinds) >= int(action["after_events"])
    return len(seen.deltas) >= int(action["after_deltas"])


def _make_add(ran: list[Case]) -> Any:
    async def add(a: int, b: int) -> str:
        """Adds two numbers."""
        ran.append({"name": "add", "arguments": {"a": a, "b": b}, "result": str(a + b)})
        return str(a + b)

    return add


def _make_shout(ran: list[Case]) -> Any:
    async def shout(text: str) -> str:
        """Says it loud."""
        ran.append({"name": "shout", "arguments": {"text": text}, "result": text.upper()})
        return text.upper()

    return shout


def _make_fail(ran: list[Case]) -> Any:
    async def fail() -> str:
        """Does not work."""
        ran.append({"name": "fail", "arguments": {}})
        raise OSError("out of order")

    return fail


_TOOLS = {"add": _make_add, "shout": _make_shout, "fail": _make_fail}

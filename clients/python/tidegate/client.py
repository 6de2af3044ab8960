"""The client of a router.

    async with Client("127.0.0.1:8500") as client:
        async for event in client.chat("What is the capital of France?"):
            print(event.text_delta.text, end="")

Leaving a loop over a turn early cancels it; leaving a session or client cancels the turns that still run.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack, overload

import grpc

from tidegate.connection import Connection
from tidegate.credentials import Tls, Token, choose_credentials
from tidegate.errors import from_rpc_error
from tidegate.forms import choose_form
from tidegate.functions import Function, describe_tool, read_function
from tidegate.messages import read_message
from tidegate.options import TurnOptions, build_spec, seconds
from tidegate.retry import Budget
from tidegate.session import Session
from tidegate.tool_loop import Asking, ToolLoop
from tidegate.tracing import trace_headers
from tidegate.turn import Turn
from tidegate.v1.chat_service_pb2 import CountTokensRequest, CountTokensResponse, Setup
from tidegate.v1.chat_service_pb2_grpc import ChatServiceStub
from tidegate.v1.turn_pb2 import Message, Sampling, Tool

TARGET_VARIABLE = "TIDEGATE_TARGET"
DEFAULT_TARGET = "127.0.0.1:8500"

T = TypeVar("T")


class Client:
    """A connection to a router that is made when it is needed.

    `target` is its `host:port`, from the environment's TIDEGATE_TARGET when left out, else that of `tidegate up`. `key` is an API key, from
    TIDEGATE_KEY when left out; `token` another bearer token, or a function that gives a fresh
    one. `tls` is True, or Tls with files. `retries` is how often a turn may be tried again, `resume_for` the seconds that turns outlive a
    lost connection; `headers` are sent with every call. Raises PlaintextRefused for a key that would travel unencrypted to another machine.
    """

    def __init__(
        self,
        target: str | None = None,
        *,
        key: str | None = None,
        token: Token | None = None,
        tls: Tls | bool | None = None,
        headers: Mapping[str, str] | None = None,
        retries: int = 2,
        resume_for: float = 10.0,
        allow_plaintext: bool = False,
    ) -> None:
        target = target or os.environ.get(TARGET_VARIABLE) or DEFAULT_TARGET
        credentials = choose_credentials(target, key=key, token=token, tls=tls, environment=os.environ, allow_plaintext=allow_plaintext)
        self._connection = Connection(target, credentials)
        self._headers = dict(headers or {})
        self._retries = retries
        self._resume_for = resume_for
        self._budget = Budget()

    @property
    def stub(self) -> ChatServiceStub:
        """The generated stub, for what this client does not do. Its calls carry no credentials but those given to them."""
        return self._connection.stub

    @overload
    def chat(
        self, *messages: Message | str, into: type[T], headers: Mapping[str, str] | None = None, **options: Unpack[TurnOptions]
    ) -> Turn[T]: ...
    @overload
    def chat(
        self, *messages: Message | str, into: None = None, headers: Mapping[str, str] | None = None, **options: Unpack[TurnOptions]
    ) -> Turn[str]: ...
    def chat(
        self, *messages: Message | str, into: Any = None, headers: Mapping[str, str] | None = None, **options: Unpack[TurnOptions]
    ) -> Turn[Any]:
        """One turn on a stream of its own, sent when it is iterated or asked for its text or value. A plain text is a user's message.

        `into` is a type that the answer is made into: a dataclass, a pydantic model, `list[str]`; the model is held to its JSON schema.
        """
        form = choose_form(into)
        spec = build_spec(messages, options, form.response_format)
        return self.session(headers=headers).ask(spec, form, options.get("deadline"), alone=True)

    def session(self, *, model: str = "", sampling: Sampling | None = None, headers: Mapping[str, str] | None = None) -> Session:
        """Many turns on one stream, to be used with `async with`; model and sampling are defaults for its turns."""
        setup = Setup(model=model, sampling=sampling, resume_for=seconds(self._resume_for) if self._resume_for else None)
        return Session(self._connection, setup, self._all_headers(headers), self._retries, self._budget)

    @overload
    def run_tools(
        self,
        *messages: Message | str,
        into: type[T],
        max_rounds: int = 8,
        headers: Mapping[str, str] | None = None,
        **options: Unpack[TurnOptions],
    ) -> ToolLoop[T]: ...
    @overload
    def run_tools(
        self,
        *messages: Message | str,
        into: None = None,
        max_rounds: int = 8,
        headers: Mapping[str, str] | None = None,
        **options: Unpack[TurnOptions],
    ) -> ToolLoop[str]: ...
    def run_tools(
        self,
        *messages: Message | str,
        into: Any = None,
        max_rounds: int = 8,
        headers: Mapping[str, str] | None = None,
        **options: Unpack[TurnOptions],
    ) -> ToolLoop[Any]:
        """Turns in which the model calls `tools`, which are functions with type hints here, until it answers.

        The deadline holds for all rounds together; a function that is running is not interrupted by it.
        """
        functions = [read_function(tool) for tool in options.get("tools", ())]
        session, form = self.session(headers=headers), choose_form(into)

        def ask(conversation: Sequence[Message], deadline_s: float | None) -> Turn[Any]:
            spec = build_spec(conversation, options, form.response_format)
            options.pop("tool_choice", None)  # a call that is forced is forced once
            return session.ask(spec, form, deadline_s)

        asking = Asking(ask, session.close_soon, options.get("deadline"), max_rounds)
        return ToolLoop(map(read_message, messages), functions, asking)

    async def count_tokens(
        self,
        *messages: Message | str,
        model: str = "",
        tools: Iterable[Tool | Function] = (),
        deadline: float | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> CountTokensResponse:
        """The tokens of a prompt as the router counts them, and how many the model holds; no model runs. Raises TidegateError."""
        request = CountTokensRequest(model=model, messages=map(read_message, messages), tools=map(describe_tool, tools))
        metadata = self._connection.metadata(self._all_headers(headers))
        try:
            counted: CountTokensResponse = await self.stub.CountTokens(request, metadata=metadata, timeout=deadline)
        except grpc.aio.AioRpcError as error:
            raise from_rpc_error(error) from None
        return counted

    async def close(self) -> None:
        """Ends everything on this connection."""
        await self._connection.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.close()

    def _all_headers(self, headers: Mapping[str, str] | None) -> dict[str, str]:
        return trace_headers() | self._headers | dict(headers or {})

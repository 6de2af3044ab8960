"""The models callers may name: each with its tokenizer, chat template and limits; and the names that stand for several."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any

from router.errors import CallerError, Violation, field_invalid, model_unknown, prompt_too_long
from router.model import Guide, Message, Role, TurnRequest
from router.model_config import Alias, ModelConfig, follow_smaller
from router.text.calls import CallParser
from router.text.template import TemplateRefused
from router.text.tokenizer import Tokenizer, TooManyTokens
from router.text.tools import Offer, describe, guide_call
from router.token_turn import TokenTurn
from router.tools import Tool
from router.turn import AnyTurn, Turn

_INLINE_CHARS = 4_096
"""Prompts up to this length are tokenized on the event loop: about 2 ms at most, and cheaper than a hop to a thread."""


class Model:
    """One model's text side."""

    def __init__(self, config: ModelConfig, tokenizer: Tokenizer, executor: Executor) -> None:
        self.name = config.name
        self.default_output_tokens = config.default_output_tokens
        self.smaller = config.smaller
        self.tokenizer = tokenizer
        self._executor = executor

    async def read_prompt(self, request: TurnRequest, offer: Offer | None = None) -> Sequence[int]:
        """The token ids of a turn's prompt, in whichever form it is given. Raises CallerError FIELD_INVALID."""
        if request.input_ids is not None:
            return self._check_ids(request.input_ids)
        if request.text is not None:
            return await self.encode_text(request.text)
        return await self.encode(request.messages, offer, request.template_options)

    async def encode(self, messages: Sequence[Message], offer: Offer | None = None, options: Mapping[str, Any] | None = None) -> list[int]:
        """The prompt's token ids. Raises CallerError FIELD_INVALID when the model's chat template takes no such conversation, and
        PROMPT_TOO_LONG. Templates leave out parts of what the model said itself and blanks, so these do not make one too long."""
        self._require_room(sum(len(it.content.strip()) for it in messages if it.content and it.role is not Role.ASSISTANT))
        tools = sum(map(_count_tool_chars, offer.tools)) if offer else 0
        if tools + sum(map(_count_chars, messages)) <= _INLINE_CHARS:
            return self._encode(messages, offer, options)
        return await asyncio.get_running_loop().run_in_executor(self._executor, self._encode, messages, offer, options)

    async def encode_text(self, text: str) -> list[int]:
        """The token ids of a text that the model continues, without its chat template. Raises CallerError PROMPT_TOO_LONG."""
        self._require_room(len(text))
        if len(text) <= _INLINE_CHARS:
            return self._encode_text(text)
        return await asyncio.get_running_loop().run_in_executor(self._executor, self._encode_text, text)

    def guide(self, offer: Offer | None, wanted: Guide | None) -> Guide | None:
        """The form of an answer: the wanted one, a call where the model must call, and where it may call either of them."""
        if offer is None or not (offer.forced or wanted):
            return wanted
        return guide_call(offer, self.tokenizer.calls, None if offer.forced else wanted)

    def open_turn(self, request: TurnRequest, offer: Offer | None, prompt_tokens: int) -> AnyTurn:
        """What follows the answer, and tells it in the form that the prompt had."""
        if request.input_ids is not None:
            return TokenTurn(request.stop_ids, prompt_tokens, logprobs=request.logprobs)
        decoder = self.tokenizer.call_decoder() if offer else self.tokenizer.decoder(continues=request.text is not None)
        return Turn(decoder, request.stop, prompt_tokens, logprobs=request.logprobs, calls=self._call_parser(offer))

    def _call_parser(self, offer: Offer | None) -> CallParser | None:
        """For one answer that may hold calls."""
        if offer is None:
            return None
        parallel = offer.parallel and self.tokenizer.parallel_calls
        return CallParser(self.tokenizer.calls, offer.callable, forced=bool(offer.forced), parallel=parallel)

    def _check_ids(self, ids: Sequence[int]) -> Sequence[int]:
        """Engines take ids that they do not have in silence."""
        if not ids or min(ids) < 0 or max(ids) >= self.tokenizer.vocab_size:
            raise field_invalid(Violation("input_ids", f"must hold at least one token id, each from 0 to {self.tokenizer.vocab_size - 1}"))
        return ids

    def _require_room(self, chars: int) -> None:
        try:
            self.tokenizer.require_room(chars)
        except TooManyTokens as error:
            raise self._too_long(error) from None

    def _too_long(self, error: TooManyTokens) -> CallerError:
        return prompt_too_long(error.tokens, self.tokenizer.context - 1, at_least=True)

    def _encode_text(self, text: str) -> list[int]:
        try:
            return self.tokenizer.encode_prompt(text)
        except TooManyTokens as error:
            raise self._too_long(error) from None

    def _encode(self, messages: Sequence[Message], offer: Offer | None, options: Mapping[str, Any] | None) -> list[int]:
        plain = [_as_template_sees(message) for message in messages]
        beginning = self.tokenizer.calls.forced if offer and offer.forced else ""
        try:
            return self.tokenizer.encode_chat(plain, describe(offer) if offer else None, beginning, options)
        except TemplateRefused as error:
            raise field_invalid(Violation("messages", f"the model's chat template refuses them: {error}")) from None
        except TooManyTokens as error:
            raise self._too_long(error) from None


@dataclass(frozen=True, slots=True)
class Asked:
    """What a caller's name stands for: a model, or those of an alias, from the smallest to the flagship."""

    name: str
    models: tuple[Model, ...]


class Models:
    """All models, the first being the default."""

    def __init__(self, models: Sequence[Model], aliases: Sequence[Alias] = ()) -> None:
        self._models = {model.name: model for model in models}
        self.default = models[0]
        named = {alias.name: tuple(self._models[name] for name in alias.models) for alias in aliases}
        self._asked = {name: Asked(name, them) for name, them in ({model.name: (model,) for model in models} | named).items()}

    def __iter__(self) -> Iterator[Model]:
        return iter(self._models.values())

    @property
    def offered(self) -> Collection[Asked]:
        """All that may be asked for, models first."""
        return self._asked.values()

    def find(self, name: str) -> Asked:
        """What a name stands for, an empty one for the default. Raises CallerError MODEL_UNKNOWN."""
        asked = self._asked.get(name or self.default.name)
        if asked is None:
            raise model_unknown()
        return asked

    def list_below(self, model: Model) -> Sequence[Model]:
        """Those that may answer in place of a model, largest first."""
        smaller = {it.name: it.smaller for it in self}
        return [self._models[name] for name in follow_smaller(smaller, model.name)]


def _count_chars(message: Message) -> int:
    return len(message.content or "") + sum(len(call.arguments) for call in message.tool_calls)


def _count_tool_chars(tool: Tool) -> int:
    return len(tool.description) + len(tool.parameters)


def _as_template_sees(message: Message) -> dict[str, Any]:
    """A message in the form Hugging Face chat templates expect."""
    assert message.role is not None, "checked in checks.py"
    plain: dict[str, Any] = {"role": message.role.value, "content": message.content}
    if message.tool_calls:
        plain["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}} for call in message.tool_calls
        ]
    if message.tool_call_id:
        plain["tool_call_id"] = message.tool_call_id
    return plain

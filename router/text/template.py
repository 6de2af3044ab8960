"""The model's own chat template: Jinja in a sandbox, with the conventions that Hugging Face's templates are written for.

What a template refuses is the caller's to change, never a fault of the router: every error of a rendering is `TemplateRefused`. The
conversation is first arranged (conversation.py) for what the template was seen to take when it was loaded (traits.py).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, NoReturn

from jinja2 import TemplateError, nodes
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from router.text.conversation import arrange_messages
from router.text.traits import TemplateRefused, TemplateTraits, probe_template

__all__ = ["ChatTemplate", "InvalidTemplate", "TemplateRefused"]


class InvalidTemplate(ValueError):
    """The template cannot be compiled, or refuses even one plain user message."""


class ChatTemplate:
    """A compiled template. Immutable, so any thread may render."""

    def __init__(self, source: str, *, bos_token: str = "", eos_token: str = "", clock: Callable[[], datetime] = datetime.now) -> None:
        """`clock` gives the date for templates that write one. Raises InvalidTemplate."""
        environment = _build_environment(clock)
        try:
            self._template = environment.from_string(source)
            constants = {it.value for it in environment.parse(source).find_all(nodes.Const)}
        except TemplateError as error:
            raise InvalidTemplate(f"the chat template cannot be compiled: {error}") from error
        self._sentences = [it for it in constants if isinstance(it, str) and it.strip()]
        self._tokens = {"bos_token": bos_token, "eos_token": eos_token}
        self.traits = self._probe()

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
    ) -> str:
        """The prompt of a conversation in OpenAI's form. Raises TemplateRefused."""
        arranged, left = self.arrange(messages, tools)
        return self.fill(arranged, tools=left, add_generation_prompt=add_generation_prompt)

    def arrange(
        self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]] | None = None
    ) -> tuple[list[dict[str, Any]], Sequence[Mapping[str, Any]] | None]:
        """The same conversation in the form that this template takes, and the tools unless they are in it. Raises TemplateRefused."""
        return arrange_messages(messages, self.traits, tools), tools if self.traits.calls else None

    def fill(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        options: Mapping[str, Any] | None = None,
    ) -> str:
        """The prompt of messages that are arranged already; `options` are other names that it may read. Raises TemplateRefused."""
        own = {"messages": messages, "tools": tools, "add_generation_prompt": add_generation_prompt, **self._tokens}
        try:
            return self._template.render({**(options or {}), **own})
        # The error is cut off from its cause, whose words and frames may hold the prompt.
        except Exception as error:
            raise TemplateRefused(self._sentence_of(error)) from None

    def _sentence_of(self, error: Exception) -> str:
        """What the template's author wrote about it, without what the template may have joined to that."""
        if isinstance(error, SecurityError):
            return "the chat template does what a template may not do"
        if not isinstance(error, _RaisedByTemplate):
            return "the chat template does not take this conversation"
        said = [it for it in self._sentences if str(error).startswith(it)]
        return max(said, key=len, default="the chat template refuses this conversation").strip()

    def _probe(self) -> TemplateTraits:
        try:
            self.fill([{"role": "user", "content": "Hello"}])
        except TemplateRefused as error:
            raise InvalidTemplate(f"the chat template refuses a plain user message: {error}") from error
        return probe_template(self.fill)


class _RaisedByTemplate(TemplateError):
    pass


class _GenerationBlock(Extension):
    """`{% generation %}` marks for training what the assistant said; in a prompt it is its body."""

    tags = {"generation"}  # noqa: RUF012

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _build_environment(clock: Callable[[], datetime]) -> ImmutableSandboxedEnvironment:
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[_GenerationBlock, loopcontrols])
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["strftime_now"] = lambda form: clock().strftime(form)
    return environment


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    # Jinja's own filter escapes for HTML, which no model was trained on.
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _raise_exception(message: str) -> NoReturn:
    raise _RaisedByTemplate(message)

"""Tools in a chat request: what a caller offers, which of them the model shall call, and the calls of earlier messages."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag

from router.model import ToolCall
from router.tools import Tool, ToolChoice, ToolMode
from router.transport.http.fields import IGNORED, Fields, write_json_text


class FunctionFields(Fields):
    """A function that the model may call."""

    name: str
    description: str = ""
    parameters: dict[str, Any] | None = Field(default=None, description="JSON schema of its arguments. Not given: it has none.")
    strict: bool = Field(default=True, description="Accepted and ignored: a call that is forced always conforms, another may not.")


class ToolFields(Fields):
    """A tool; functions are the only kind."""

    type: Literal["function"]
    function: FunctionFields
    cache_control: Any = Field(default=None, description=f"{IGNORED} Prefixes are cached by themselves.")

    def tool(self, path: str) -> Tool:
        """As the pipeline knows it. Raises CallerError FIELD_INVALID with the path that the tool has."""
        given = self.function.parameters
        parameters = "" if given is None else write_json_text(f"{path}.function.parameters", given)
        return Tool(self.function.name, self.function.description, parameters)


class NameFields(Fields):
    """A function's name."""

    name: str


class NamedChoice(Fields):
    """The one tool that the model must call."""

    type: Literal["function"]
    function: NameFields


def _shape_of_choice(value: Any) -> str:
    return "<object>" if isinstance(value, dict | NamedChoice) else "<text>"


Choice = Annotated[
    Annotated[Literal["auto", "none", "required"], Tag("<text>")] | Annotated[NamedChoice, Tag("<object>")], Discriminator(_shape_of_choice)
]


def read_choice(choice: Choice) -> ToolChoice:
    """As the pipeline knows it."""
    return ToolChoice(name=choice.function.name) if isinstance(choice, NamedChoice) else ToolChoice(ToolMode(choice))


class CalledFields(Fields):
    """What a call calls."""

    name: str
    arguments: str = Field(description="JSON text.")
    parsed_arguments: Any = Field(default=None, description=f"{IGNORED} OpenAI's clients keep there what they read from the arguments.")


class CallFields(Fields):
    """A call that an assistant's message holds."""

    id: str
    type: Literal["function"] = "function"
    function: CalledFields
    index: int = Field(default=0, description=f"{IGNORED} Calls that were streamed have it.")

    def call(self) -> ToolCall:
        """As the pipeline knows it."""
        return ToolCall(self.id, self.function.name, self.function.arguments)

"""What POST /v1/chat/completions takes, and the turns that it stands for."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag

from router.errors import Violation, field_invalid, option_unsupported
from router.model import Guide, GuideKind, Message, Role, TurnRequest
from router.transport.http.fields import IGNORED, CompletionFields, Fields, ListOf, shape_of, write_json_text
from router.transport.http.tool_fields import CallFields, Choice, ToolFields, read_choice


class TextPart(Fields):
    """A piece of a message; pieces are joined by line breaks. Images, sounds and files are not served."""

    type: Literal["text"]
    text: str
    cache_control: Any = Field(default=None, description=f"{IGNORED} Prefixes are cached by themselves.")


Content = Annotated[Annotated[str, Tag("<text>")] | Annotated[ListOf[TextPart], Tag("<list>")], Discriminator(shape_of)]


class ChatMessage(Fields):
    """One entry of the conversation; `developer` is `system`."""

    role: Literal["developer", "system", "user", "assistant", "tool"]
    content: Content | None = None
    refusal: str = Field(default="", description="Stands for the content of an assistant's message that has none.")
    name: str = Field(default="", description=IGNORED)
    reasoning_content: str = Field(default="", description=f"{IGNORED} Clients keep there what a model thought.")
    provider_specific_fields: Any = Field(default=None, description=f"{IGNORED} LiteLLM keeps there what it does not know.")
    cache_control: Any = Field(default=None, description=f"{IGNORED} Prefixes are cached by themselves.")
    annotations: ListOf[Any] = Field(default_factory=list, description=IGNORED)
    parsed: Any = Field(default=None, description=f"{IGNORED} OpenAI's clients keep there what they read from the content.")
    tool_calls: ListOf[CallFields] = Field(default_factory=list)
    tool_call_id: str = ""

    def message(self) -> Message:
        """As the pipeline knows it."""
        content = "\n".join(it.text for it in self.content) if isinstance(self.content, list) else self.content
        if content is None and self.role == "assistant":
            content = self.refusal or None
        role = Role.SYSTEM if self.role == "developer" else Role(self.role)
        return Message(role, content, tuple(it.call() for it in self.tool_calls), self.tool_call_id)


class JsonSchema(Fields):
    """A named schema; the answer always conforms to it, `strict` or not."""

    name: str = ""
    description: str = ""
    schema_: dict[str, Any] = Field(alias="schema")
    strict: bool = True


class ResponseFormat(Fields):
    """The form of the answer. `regex` and `ebnf` are as in TensorRT-LLM's own server."""

    type: Literal["text", "json_object", "json_schema", "regex", "ebnf"]
    json_schema: JsonSchema | None = None
    regex: str = ""
    ebnf: str = ""

    def guide(self) -> Guide | None:
        """Raises CallerError FIELD_INVALID."""
        match self.type:
            case "text":
                return None
            case "json_object":
                return Guide(GuideKind.JSON)
            case "json_schema":
                return Guide(GuideKind.JSON_SCHEMA, self._schema_text())
            case "regex":
                return Guide(GuideKind.REGEX, self.regex)
            case "ebnf":
                return Guide(GuideKind.GRAMMAR, self.ebnf)

    def _schema_text(self) -> str:
        path = "response_format.json_schema"
        if self.json_schema is None:
            raise field_invalid(Violation(path, "is required"))
        return write_json_text(f"{path}.schema", self.json_schema.schema_)


class ChatRequest(CompletionFields):
    """A request for the next message of a conversation."""

    messages: ListOf[ChatMessage]
    max_completion_tokens: int | None = Field(default=None, ge=1, description="Most tokens of an answer; goes before max_tokens.")
    logprobs: bool = Field(default=False, description="Whether to send the log probability of each token of the answer.")
    top_logprobs: int = Field(default=0, ge=0, le=20, description="Not served above 0: workers tell of the chosen token only.")
    response_format: ResponseFormat = ResponseFormat(type="text")
    tools: ListOf[ToolFields] = Field(default_factory=list, description="Functions that the model may call.")
    tool_choice: Choice = Field(default="auto", description="Whether it calls one, or the one that it must call.")
    parallel_tool_calls: bool = Field(default=True, description="Whether it may call several at once.")
    chat_template_kwargs: dict[Annotated[str, Field(pattern=r"^[A-Za-z_]\w{0,63}$")], Any] = Field(
        default_factory=dict, max_length=16, description="What the model's chat template reads by name, as enable_thinking."
    )
    modalities: ListOf[Literal["text"]] = Field(default_factory=list, description="Only text is served.")
    service_tier: Literal["auto", "default"] = Field(default="auto", description=f"{IGNORED} See `priority`.")
    store: Literal[False] = Field(default=False, description="Nothing is stored.")

    @property
    def choices(self) -> int:
        """Answers that the request asks for."""
        return self.n

    @property
    def most_tokens(self) -> int | None:
        """Most tokens of an answer, by whichever name."""
        return self.max_tokens if self.max_completion_tokens is None else self.max_completion_tokens

    def turns(self) -> list[TurnRequest]:
        """One for each answer. Raises CallerError FIELD_INVALID and OPTION_UNSUPPORTED."""
        if self.top_logprobs:
            raise option_unsupported("top_logprobs", "only 0 is served; workers tell of the chosen token only")
        options = self.turn_options()
        options["messages"] = [it.message() for it in self.messages]
        options["guide"] = self.response_format.guide()
        options["logprobs"] = self.logprobs
        options["tools"] = tuple(it.tool(f"tools[{at}]") for at, it in enumerate(self.tools))
        options["tool_choice"] = read_choice(self.tool_choice)
        options["template_options"] = self.chat_template_kwargs
        options["parallel_tool_calls"] = self.parallel_tool_calls
        return [TurnRequest(**options, sampling=it) for it in self.samplings()]

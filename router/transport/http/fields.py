"""Request bodies as strict models: what both completion APIs share, and faults as violations that name the field.

A field that is null counts as not given, everywhere. A field that no model has is refused by name: an option that is dropped in silence
would be worse than none. The few that are accepted without effect say so in their description, and so does /openapi.json.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Annotated, Any, Literal, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Discriminator, FailFast, Field, Tag, ValidationError, model_validator
from pydantic_core import ErrorDetails, PydanticCustomError

from router.errors import MOST_VIOLATIONS, Violation, field_invalid
from router.model import Priority, Sampling

Body = TypeVar("Body", bound="Fields")
Item = TypeVar("Item")


class _FirstFault(FailFast):
    __hash__ = object.__hash__  # a union of types must have one


ListOf = Annotated[list[Item], _FirstFault()]
"""A list whose first wrong element is told, and no other: each fault costs a hundred times what a value costs."""

_MOST_FIELDS = 64
IGNORED = "Accepted and ignored."


class Fields(BaseModel):
    """A JSON object without unknown fields."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _drop_nulls(cls, value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        if len(value) > _MOST_FIELDS:
            raise PydanticCustomError("too_many_fields", "has more fields than this router has options")
        return {name: it for name, it in value.items() if it is not None}


def read_fields(kind: type[Body], value: Any) -> Body:
    """The body as its model. Raises CallerError FIELD_INVALID with the fields that are wrong."""
    try:
        return kind.model_validate(value)
    except ValidationError as error:
        faults = _list_faults(error)
    told = faults[:MOST_VIOLATIONS]
    raise field_invalid(*(Violation(_path_of(it["loc"]), _describe(it["type"], it["msg"])) for it in told), more=len(faults) - len(told))


def drop_unknown(kind: type[Fields], value: Any) -> list[str]:
    """Takes the options that the model does not have out of a body's top level; gives their names."""
    known = {it.alias or name for name, it in kind.model_fields.items()}
    unknown = sorted(value.keys() - known) if isinstance(value, dict) else []
    for name in unknown:
        del value[name]
    return unknown


def _list_faults(error: ValidationError) -> list[ErrorDetails]:
    return error.errors(include_url=False, include_context=False, include_input=False)


def shape_of(value: Any) -> str:
    """Which member of a union `text or list` a value is for; names in angle brackets are no part of a field's path."""
    return "<list>" if isinstance(value, list) else "<text>"


Texts = Annotated[Annotated[str, Tag("<text>")] | Annotated[ListOf[str], Tag("<list>")], Discriminator(shape_of)]
"""One text or several."""

Seed = Annotated[int, Field(ge=-(2**63), lt=2**64), AfterValidator(lambda seed: seed % 2**64)]
"""OpenAI's has a sign and the engine's has none: each of the one is another of the other."""

TopK = Annotated[int, Field(ge=-1), AfterValidator(lambda most: max(most, 0))]
"""-1 is vLLM's 0."""


class StreamOptions(Fields):
    """How a streamed answer is written."""

    include_usage: bool = Field(default=False, description="Ends the stream with a chunk that holds the token counts of all choices.")
    include_obfuscation: bool = Field(default=False, description=IGNORED)


class CompletionFields(Fields):
    """What a chat and a plain completion have in common. Ranges are checked where turns are."""

    model: str = Field(default="", description="One of /v1/models. Empty: the default model.")
    stream: bool = False
    stream_options: StreamOptions = StreamOptions()
    n: int = Field(default=1, ge=1, description="Answers wanted. Each is a turn of its own and is counted as one.")
    max_tokens: int | None = Field(default=None, ge=1, description="Most tokens of an answer.")
    min_tokens: int | None = Field(default=None, ge=0, description="Fewest tokens before the model may end an answer.")
    ignore_eos: bool = Field(default=False, description="For load tools: the model may not end an answer before the most tokens.")
    stop: Texts | None = Field(default=None, description="Texts that end the answer and are not part of it.")
    seed: Seed | None = Field(default=None, description="The answer with index i is made with seed + i.")
    temperature: float = Field(default=1.0, description="0 is greedy.")
    top_p: float | None = None
    top_k: TopK | None = Field(default=None, description="0, which may be written as -1: any token.")
    min_p: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    repetition_penalty: float | None = None
    logit_bias: dict[str, float] = Field(default_factory=dict, max_length=0, description="Not served: must be empty.")
    priority: Literal["interactive", "standard", "batch"] = Field(
        default="interactive", description="Among the waiting turns of one tenant."
    )
    max_wait_s: float | None = Field(default=None, gt=0, description="Longest time in the queue, in seconds.")
    reasoning_effort: Literal["none", "minimal", "low", "medium", "high", "xhigh"] | None = Field(
        default=None, description=f"{IGNORED} No model here thinks more or less."
    )
    user: str = Field(default="", description=IGNORED)
    metadata: dict[str, Any] = Field(default_factory=dict, description=IGNORED)
    safety_identifier: str = Field(default="", description=IGNORED)
    prompt_cache_key: str = Field(default="", description=IGNORED)

    def samplings(self) -> list[Sampling]:
        """One for each of the `n` answers, with presence kept: what is not given is None."""
        first = Sampling(**{name: getattr(self, name) for name in Sampling.__dataclass_fields__})
        return [first if first.seed is None else replace(first, seed=(first.seed + at) % 2**64) for at in range(self.n)]

    @property
    def most_tokens(self) -> int | None:
        """Most tokens of an answer, by whichever name."""
        return self.max_tokens

    def turn_options(self) -> dict[str, Any]:
        """What every turn of the request has, as fields of TurnRequest. Raises CallerError FIELD_INVALID."""
        if self.ignore_eos and self.most_tokens is None:
            raise field_invalid(Violation("ignore_eos", "needs max_tokens"))
        return {
            "model": self.model,
            "max_output_tokens": self.most_tokens,
            "min_output_tokens": self.most_tokens if self.ignore_eos else self.min_tokens,
            "stop": (self.stop,) if self.stop and isinstance(self.stop, str) else tuple(self.stop or ()),
            "priority": Priority(self.priority),
            "max_wait_s": self.max_wait_s,
        }


def write_json_text(field: str, value: Any) -> str:
    """A value of the body as JSON text of its own, numbers as they came. Raises CallerError FIELD_INVALID."""
    try:
        return json.dumps(value, ensure_ascii=False)
    except RecursionError:
        raise field_invalid(Violation(field, "is nested too deeply")) from None


def _path_of(location: tuple[int | str, ...]) -> str:
    """As `messages[1].content`; the names may be the caller's own and of any length."""
    path = ""
    for part in location:
        if isinstance(part, int):
            path += f"[{part}]"
        elif not part.startswith("<"):
            path += f".{part}" if path else part
    return path or "body"


def _describe(kind: str, words: str) -> str:
    return _WORDS.get(kind) or words.replace("Input should be", "must be", 1)


_WORDS = {
    "missing": "is required",
    "extra_forbidden": "is no option of this router",
    "model_type": "must be an object",
    "model_attributes_type": "must be an object",
    "dict_type": "must be an object",
    "list_type": "must be a list",
    "too_long": "must be empty: this is not served",
    "too_short": "must not be empty",
}

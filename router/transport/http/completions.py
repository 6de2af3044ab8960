"""What POST /v1/completions takes: texts that the model continues as they are, without a chat template."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Discriminator, Field, Tag

from router.errors import option_unsupported
from router.model import TurnRequest
from router.transport.http.fields import CompletionFields, ListOf, shape_of

Prompts = Annotated[Annotated[str, Tag("<text>")] | Annotated[ListOf[str], Field(min_length=1), Tag("<list>")], Discriminator(shape_of)]


class CompletionRequest(CompletionFields):
    """A request to continue one text or several."""

    prompt: Prompts = Field(description="One text or several; token ids are not taken.")
    logprobs: int | None = Field(
        default=None,
        ge=0,
        le=5,
        description="0 sends each token's log probability. Not served above 0: workers tell of the chosen one only.",
    )
    echo: Literal[False] = Field(default=False, description="Not served.")
    best_of: Literal[1] = Field(default=1, description="Not served: must be 1.")

    @property
    def prompts(self) -> list[str]:
        """The texts."""
        return [self.prompt] if isinstance(self.prompt, str) else self.prompt

    @property
    def choices(self) -> int:
        """Answers that the request asks for."""
        return self.n * len(self.prompts)

    def turns(self) -> list[TurnRequest]:
        """One for each answer; those of a prompt are neighbours. Raises CallerError FIELD_INVALID and OPTION_UNSUPPORTED."""
        if self.logprobs:
            raise option_unsupported("logprobs", "only 0 is served; workers tell of the chosen token only")
        options, samplings, logprobs = self.turn_options(), self.samplings(), self.logprobs is not None
        return [
            TurnRequest(**options, messages=(), text=prompt, logprobs=logprobs, sampling=sampling)
            for prompt in self.prompts
            for sampling in samplings
        ]

"""What a workload asks: the same for every target."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Message:
    """One entry of a conversation; `role` is `system`, `user` or `assistant`."""

    role: str
    content: str


@dataclass(frozen=True, slots=True)
class Request:
    """One request of a run.

    `at` is when it is to be sent, in seconds: from the start of the run, or, of a `follow_up`, from the end of the answer that it follows
    (the reader's thinking time). A follow-up's `messages` come after its predecessor's and the answer to those.
    """

    number: int
    at: float
    messages: tuple[Message, ...]
    output_tokens: int
    tenant: str = ""
    follow_up: Request | None = None

    def with_follow_ups(self) -> Iterator[Request]:
        """This request and those that follow it, in order."""
        request: Request | None = self
        while request is not None:
            yield request
            request = request.follow_up

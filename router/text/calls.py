"""Finds tool calls in an answer while its text arrives: text in, text and pieces of calls out.

Theory of operation. `_held` is the text that is not decided yet, and `_read` the method that reads on in it from `_at`: in text, between
calls, in a call up to its arguments, in the arguments, behind them. Each takes what it is sure of, names the next, and says whether to go
on. None decides anything that more text could change, so how the answer is cut does not matter. The rules:

* An answer may begin with a call at once. Llama's models are trained to, and others do it too: Qwen 2.5 Coder nearly always.
* Blanks right before an opening, and blanks, commas and brackets around calls, belong to the calls.
* A call has begun when its name and the opening brace of its arguments are there in the usual order; from then on the arguments pass as
  they come. Any other object, such as one with the arguments first, is read when it is whole.
* What does not become a call is text: it is no such object, or names no offered tool, or has not begun within MAX_HELD characters.
* Arguments that are missing are `{}`; those given as JSON text in a string are what that text says.
* A call that has begun cannot be taken back. If it breaks off, or its arguments are no JSON object, `whole` stays false.
* A forced answer is one call or nothing: its call is told when it is whole, and no text ever.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Collection, Iterator

from router.model import TextDelta
from router.text.call_format import CallFormat
from router.text.call_json import HEAD, JsonEnd, is_object, may_be_call, read_call
from router.tools import ToolCallDelta

MAX_HELD = 32 * 1024
"""What has not become a call within so many characters is text."""
MAX_BLANKS = 256
"""Of the blanks before a call, at most so many belong to it."""

_AFTER_SEPARATORS = re.compile(r"(?![\s\[\],;])")


def make_call_id() -> str:
    """Nine letters and digits: Mistral's chat templates take no other id, and all others take any."""
    return secrets.token_hex(5)[:9]


class CallParser:
    """Reads one answer."""

    def __init__(
        self,
        form: CallFormat,
        names: Collection[str],
        *,
        forced: bool = False,
        parallel: bool = True,
        new_id: Callable[[], str] = make_call_id,
    ) -> None:
        """`names` are those of the tools. `forced`: the prompt ends with the beginning of a call, and the answer must be that call. Not
        `parallel`: one call is enough, as it is when it is forced."""
        self.forced = forced
        self._form = form
        self._names = names
        self._parallel = parallel and not forced
        self._new_id = new_id
        self._read: Callable[[], bool] = self._read_between if forced else self._read_text
        self._held = ""
        self._at = 0
        self._pieces: list[TextDelta | ToolCallDelta] = []
        self._spoken = forced
        self._calls = 0
        self._open_calls = 0
        self._called_here = False
        self._arguments: list[str] = []
        self._end = JsonEnd()
        self._scanned = 0

    @property
    def whole(self) -> bool:
        """Whether there is at least one call, and every one is whole."""
        return self._calls > 0 and not self._open_calls

    @property
    def done(self) -> bool:
        """Whether nothing more is wanted of the answer."""
        return not self._parallel and self.whole

    def feed(self, text: str) -> Iterator[TextDelta | ToolCallDelta]:
        """What is sure with this text, read while it is taken: who does not take all of it has ended the answer."""
        self._held += text
        going_on = True
        while going_on and not self.done:
            going_on = self._read()
            yield from self._take_pieces()

    def flush(self) -> list[TextDelta | ToolCallDelta]:
        """The end of the answer: what was held back and became no call. Blanks behind a call are nothing."""
        if not self._calls or self._held.strip():
            self._show(len(self._held))
        return self._take_pieces()

    def _read_text(self) -> bool:
        held, opening = self._held, self._form.opening
        if not self._spoken:
            blanks = len(held) - len(held.lstrip())
            if blanks <= MAX_BLANKS and held[blanks : blanks + 1] in ("", "{"):
                return blanks < len(held) and self._go_on(self._read_between, blanks)
        at = held.find(opening)
        if at < 0:
            self._show(_before_blanks(held, _find_beginning(held, opening)))
            return False
        self._show(_before_blanks(held, at))
        return self._open(self._held.index(opening))

    def _read_between(self) -> bool:
        found = _AFTER_SEPARATORS.search(self._held, self._at)
        assert found, "the end of the text is one"
        self._at = found.start()
        if self._called_here:
            self._drop(self._at)
        rest, opening, closing = self._held[self._at :], self._form.opening, self._form.closing
        if rest.startswith("{"):
            self._end, self._scanned = JsonEnd(), self._at
            return self._go_on(self._read_object, self._at)
        if rest.startswith(opening):
            return self._open(self._at)
        if closing and rest.startswith(closing) and self._called_here:
            self._drop(len(closing))
            return self._go_on(self._read_text)
        if self._at <= MAX_HELD and (opening.startswith(rest) or closing.startswith(rest)):
            return False
        return self._take_as_text(self._at)

    def _read_object(self) -> bool:
        held, at = self._held, self._at
        head = HEAD.match(held, at)
        if head:
            return self._begin(head["name"], head.end()) if head["name"] in self._names else self._take_as_text(at + 1)
        end = self._end.find(held, self._scanned)
        self._scanned = len(held)
        if not may_be_call(held, at) or (end or len(held)) - at > MAX_HELD:
            return self._take_as_text(at + 1)
        return end is not None and self._read_whole(end)

    def _read_whole(self, end: int) -> bool:
        name, arguments = read_call(self._held[self._at : end])
        if name not in self._names:
            return self._take_as_text(self._at + 1)
        self._begin(name, end)
        self._add_arguments(arguments)
        self._open_calls -= 1
        return self._end_call()

    def _read_arguments(self) -> bool:
        end = self._end.find(self._held)
        self._add_arguments(self._held[:end])
        self._drop(end)
        if end is None:
            return False
        if is_object("".join(self._arguments)):
            self._open_calls -= 1
        return self._go_on(self._read_behind)

    def _read_behind(self) -> bool:
        """A brace may be missing, or there is more, such as an id: the call is whole all the same."""
        self._held = self._held.lstrip()
        if not self._held:
            return False
        if self._held.startswith(","):
            self._end = JsonEnd(depth=1)
            return self._go_on(self._skip_rest)
        self._drop(int(self._held.startswith("}")))
        return self._end_call()

    def _skip_rest(self) -> bool:
        end = self._end.find(self._held)
        self._drop(end)
        return end is not None and self._end_call()

    def _open(self, at: int) -> bool:
        self._called_here = False
        return self._go_on(self._read_between, at + len(self._form.opening))

    def _begin(self, name: str, end: int) -> bool:
        self._pieces.append(ToolCallDelta(self._calls, self._new_id(), name))
        self._calls += 1
        self._open_calls += 1
        self._spoken = True
        self._arguments, self._end = [], JsonEnd()
        self._drop(end)
        return self._go_on(self._read_arguments)

    def _add_arguments(self, text: str) -> None:
        if text:
            self._arguments.append(text)
            self._pieces.append(ToolCallDelta(self._calls - 1, arguments=text))

    def _end_call(self) -> bool:
        self._called_here = True
        return self._go_on(self._read_between)

    def _take_as_text(self, end: int) -> bool:
        self._show(end)
        return self._go_on(self._read_text)

    def _go_on(self, read: Callable[[], bool], at: int = 0) -> bool:
        self._read, self._at = read, at
        return True

    def _show(self, end: int) -> None:
        if end:
            if not self.forced:
                self._pieces.append(TextDelta(self._held[:end]))
            self._spoken = True
            self._drop(end)

    def _drop(self, end: int | None) -> None:
        """What is held up to a place, or all of it, is done with."""
        self._held, self._at = "" if end is None else self._held[end:], 0

    def _take_pieces(self) -> list[TextDelta | ToolCallDelta]:
        if self.forced and not self.whole:
            return []
        pieces, self._pieces = self._pieces, []
        return pieces


def _before_blanks(text: str, at: int) -> int:
    """The place before the blanks that precede `at`."""
    return max(len(text[:at].rstrip()), at - MAX_BLANKS)


def _find_beginning(text: str, word: str) -> int:
    """Where the text ends in a beginning of the word; its end if it does not."""
    at = text.find(word[0], max(0, len(text) - len(word) + 1))
    while at >= 0 and not word.startswith(text[at:]):
        at = text.find(word[0], at + 1)
    return len(text) if at < 0 else at

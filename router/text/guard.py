"""Keeps callers from writing control tokens: `<|im_end|>` typed by a user is text, `<|im_end|>` written by the template is structure.

Theory of operation. A template renders to one string, in which both look alike, so the caller's strings are marked before. The mark is a
Unicode noncharacter that occurs in none of them; it is put

1. behind the first character of every place where a token's text stands in a caller's string, also of places that overlap,
2. at the end of a string that a following text could complete to a token,
3. at the beginning of a string that would complete a token begun before it,
4. there too if the whole string could lie inside a token.

After that, a token's text in the rendered string holds nothing of a caller's but white space: anything else has a mark inside. What still
matches is the template's own and is replaced by a sealed name (see sealed.py), which no caller can guess; then the marks are taken out.
Marks 2 and 3 stand inside of the string's outer white space, because templates trim.

Only the words of the protocol itself, as "user" or "function", are never marked: templates compare them, and write `<|user|>` from them.
A template that searches a caller's text for a token, as some do for `</think>`, does not find it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from os.path import commonprefix
from typing import Any

# Unicode keeps U+FDD0 to U+FDEF for a program's own use; text in interchange has none.
_MARKS = [chr(code) for code in range(0xFDD0, 0xFDF0)]
_ANY_MARK = re.compile(f"[{_MARKS[0]}-{_MARKS[-1]}]")

_MESSAGE_FIELDS = ("role", "content", "reasoning_content", "name", "tool_calls", "tool_call_id", "id", "type", "function", "arguments")
_TOOL_FIELDS = ("parameters", "description", "properties", "required", "items", "enum")
_ROLES_AND_KINDS = ("system", "user", "assistant", "tool", "text")
_JSON_TYPES = ("object", "array", "string", "number", "integer", "boolean", "null")
_PROTOCOL_WORDS = frozenset((*_MESSAGE_FIELDS, *_TOOL_FIELDS, *_ROLES_AND_KINDS, *_JSON_TYPES))


class TokenGuard:
    """Marks and finds the guarded tokens of one model. `names` maps each one's text, of two characters or more, to its sealed name."""

    def __init__(self, names: Mapping[str, str]) -> None:
        self._names = names
        tokens = _longest_first(names) or r"(?!)"
        self._token = re.compile(tokens)
        self._token_start = re.compile(f"(?={tokens}).", re.DOTALL)
        self._beginnings = frozenset(text[:end] for text in names for end in range(1, len(text)))
        self._ends = frozenset(text[start:] for text in names for start in range(1, len(text)))
        self._edges = frozenset(edge for text in names for edge in (text[0], text[-1]))
        self._all = "\n".join(names)
        self._longest = max(map(len, names), default=0)
        self._plain_words = _PROTOCOL_WORDS.difference(names)

    def mark(self, conversation: Any) -> tuple[Any, str]:
        """A JSON value with the marks in all its strings, and the character that was used for them; none where nothing is to be marked."""
        if not self._touches(conversation):
            return conversation, ""
        written = json.dumps(conversation, ensure_ascii=False)
        mark = next((it for it in _MARKS if it not in written), None)
        if mark is not None:
            return _map_strings(conversation, lambda text: self._mark_text(text, mark)), mark
        # Only a caller who means harm writes all of them.
        return self.mark(_map_strings(conversation, lambda text: _ANY_MARK.sub("", text)))

    def seal(self, rendered: str, mark: str) -> str:
        """The rendered text with the template's own tokens under their sealed names, and without marks."""
        sealed = self._token.sub(lambda found: self._names[found[0]], rendered)
        return sealed.replace(mark, "") if mark else sealed

    def _touches(self, value: Any) -> bool:
        """Whether a string of a JSON value may need a mark, which few do."""
        if isinstance(value, str):
            return self._may_need_mark(value)
        if isinstance(value, dict):
            return any(self._touches(key) or self._touches(item) for key, item in value.items())
        return isinstance(value, list | tuple) and any(map(self._touches, value))

    def _may_need_mark(self, text: str) -> bool:
        """A token in it has both its edges, one begun in it the first, one completed by it the last; else it may lie inside of one."""
        if text in self._plain_words:
            return False
        return any(edge in text for edge in self._edges) or self._may_lie_inside(text.strip())

    def _may_lie_inside(self, core: str) -> bool:
        return 0 < len(core) < self._longest and core in self._all

    def _mark_text(self, text: str, mark: str) -> str:
        if not self._may_need_mark(text):
            return text
        text = "".join(self._split_behind_starts(text, mark))
        core = text.strip()
        if not core:
            return text
        before = mark if self._may_lie_inside(core) or any(core[:n] in self._ends for n in self._affix_lengths(core)) else ""
        after = mark if any(core[-n:] in self._beginnings for n in self._affix_lengths(core)) else ""
        return text.replace(core, f"{before}{core}{after}", 1) if before or after else text

    def _split_behind_starts(self, text: str, mark: str) -> Iterator[str]:
        """The text with a mark behind the first character of each token's text. `re.sub` would keep the interpreter for all of it."""
        done = 0
        for found in self._token_start.finditer(text):
            yield text[done : found.end()]
            yield mark
            done = found.end()
        yield text[done:]

    def _affix_lengths(self, core: str) -> range:
        return range(1, min(self._longest, len(core) + 1))


def _map_strings(value: Any, change: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return change(value)
    if isinstance(value, dict):
        return {change(key): _map_strings(item, change) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_map_strings(item, change) for item in value]
    return value


def _longest_first(words: Collection[str]) -> str:
    """A regular expression for any of the words, the longest where several begin, that takes time by their length, not number."""
    groups: dict[str, list[str]] = {}
    for word in sorted(words):
        groups.setdefault(word[0], []).append(word)
    return "|".join(_shared_prefix(group) for group in groups.values())


def _shared_prefix(group: list[str]) -> str:
    prefix = commonprefix(group)  # noqa: RUF071 - of characters, not of path components
    rests = [word[len(prefix) :] for word in group]
    longer = [rest for rest in rests if rest]
    if not longer:
        return re.escape(prefix)
    return f"{re.escape(prefix)}(?:{_longest_first(longer)}){'?' if '' in rests else ''}"

"""The tokenizer of one model: conversations to token ids, token ids to text, and what the model's folder says of its limits.

A prompt is made in five steps: arrange the conversation for the template, mark the caller's strings, render, seal the control tokens that
the template wrote, encode. Whatever a caller writes, control ids in the prompt come from the template alone; for texts that hold no token's
name the ids are those of Hugging Face's own tokenizer. A beginning-of-text token is in the prompt if the template writes it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from router.text.call_format import HERMES
from router.text.decode import Decoder
from router.text.folder import InvalidModel, ModelFiles, read_model_files
from router.text.guard import TokenGuard
from router.text.length import TooManyTokens, longest_token
from router.text.sealed import build_sealed, seal_names
from router.text.template import ChatTemplate, InvalidTemplate, TemplateRefused
from router.text.vocabulary import (
    UnsupportedTokenizer,
    added_tokens_of,
    leading_spaces_of,
    opening_ids_of,
    pieces_of,
    token_bytes_of,
    unknown_id_of,
)

__all__ = ["InvalidModel", "TemplateRefused", "Tokenizer", "TooManyTokens"]

# Prompts come one by one. The library would hand each to a pool of threads and wait for it, which costs a third more.
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

_LONG = 8
"""Characters for each token of the context from which on a text is counted before it is encoded: seldom does one so long fit."""
_PIECE_CHARS = 16_384
_CUT_TOKENS = 32


class Tokenizer:
    """Immutable once made, so any thread may use it; encoding leaves the interpreter to others.

    token_bytes: bytes by token id, b"" for control tokens.
    control_ids: tokens that are structure; no caller's text turns into one.
    eos_ids:     tokens that end an answer, the main one first.
    context:     most tokens of prompt and answer together.
    vocab_size:  number of ids that the model knows, which may be more than there are tokens.
    calls:       how the model writes tool calls; with `parallel_calls`, several in one answer.
    """

    def __init__(self, files: ModelFiles) -> None:
        """Raises UnsupportedTokenizer, or InvalidTemplate."""
        source = files.tokenizer_json
        self._lead = leading_spaces_of(source)
        self._opening_ids = opening_ids_of(source)
        names = seal_names(source)
        self._sealed = build_sealed(source, names)
        self._guard = TokenGuard(names)
        self.token_bytes = token_bytes_of(source)
        self._longest = longest_token(source, self.token_bytes)
        self.control_ids = frozenset(it.id for it in added_tokens_of(source) if it.control) - {unknown_id_of(source)}
        self.eos_ids = _find_eos_ids(files)
        self.context = files.context
        self.vocab_size = files.vocab_size
        self._template = ChatTemplate(files.chat_template, bos_token=files.bos_token, eos_token=files.eos_token)
        self.calls = self._template.traits.calls or HERMES
        self.parallel_calls = self._template.traits.calls is None or self._template.traits.parallel_calls
        shown = {it.id: it.text.encode() for it in added_tokens_of(source) if it.text in (self.calls.opening, self.calls.closing)}
        self._call_bytes = [shown.get(token, data) for token, data in enumerate(self.token_bytes)] if shown else self.token_bytes

    @classmethod
    def load(cls, folder: Path) -> Tokenizer:
        """Read a model's folder in Hugging Face layout. Raises InvalidModel."""
        files = read_model_files(folder)
        try:
            return cls(files)
        except UnsupportedTokenizer as error:
            raise InvalidModel(f"{folder / 'tokenizer.json'}: {error}") from error
        except KeyError as error:
            raise InvalidModel(f"{folder / 'tokenizer.json'} lacks the field {error}") from error
        except InvalidTemplate as error:
            raise InvalidModel(f"{folder}: {error}") from error

    def require_room(self, chars: int) -> None:
        """Raises TooManyTokens when no text of so many characters fits into the context."""
        if self._longest and chars > self._longest * self.context:
            raise TooManyTokens(chars // self._longest)

    def encode_text(self, text: str) -> list[int]:
        """Ids of a plain text, never a control id; nothing is put before or behind it. Raises TooManyTokens when it cannot fit."""
        text = _replace_surrogates(text)
        if len(text) > _LONG * self.context:
            self._count_pieces(text)
        return self._encode(text)

    def _count_pieces(self, text: str) -> None:
        """Raises TooManyTokens as soon as it is certain; cutting a text into pieces adds a few tokens to each."""
        counted, bound = 0, self.context + self.context // 16
        for at in range(0, len(text), _PIECE_CHARS):
            counted += len(self._encode(text[at : at + _PIECE_CHARS])) - _CUT_TOKENS
            if counted > bound:
                raise TooManyTokens(counted)

    def _encode(self, text: str) -> list[int]:
        # For a batch, unlike for one text, the library releases the interpreter lock and leaves out offsets.
        ids: list[int] = self._sealed.encode_batch_fast([text], add_special_tokens=False)[0].ids
        return ids

    def encode_prompt(self, text: str) -> list[int]:
        """Ids of a text that the model continues: those that its tokenizer puts before every text, then the text's own."""
        return [*self._opening_ids, *self.encode_text(text)]

    def encode_chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] | None = None,
        beginning: str = "",
        options: Mapping[str, Any] | None = None,
    ) -> list[int]:
        """Ids of the prompt that asks the model for the next assistant message. Raises TemplateRefused, and TooManyTokens.

        `beginning` is how that message begins, in our words: what is a control token in it becomes one. `options` are the caller's, for
        templates that read some.
        """
        try:
            given = dict(options or {})
            (marked, marked_tools, values), mark = self._guard.mark((*self._template.arrange(messages, tools), list(given.values())))
        except RecursionError:
            raise TemplateRefused("the conversation is nested too deeply") from None
        rendered = self._template.fill(marked, tools=marked_tools, options=dict(zip(given, values, strict=True)))
        return self.encode_text(self._guard.seal(rendered + beginning, mark))

    def decoder(self, *, continues: bool = False) -> Decoder:
        """For one answer; `continues` if it is read behind a text, where its leading spaces count."""
        return Decoder(self.token_bytes, lead=0 if continues else self._lead)

    def call_decoder(self) -> Decoder:
        """For one answer that may hold tool calls: the control tokens around them are text in it."""
        return Decoder(self._call_bytes, lead=self._lead)


def _find_eos_ids(files: ModelFiles) -> tuple[int, ...]:
    """Those the configuration states, then the tokenizer's own end token."""
    known = dict(pieces_of(files.tokenizer_json["model"]))
    known |= {it.text: it.id for it in added_tokens_of(files.tokenizer_json)}
    own = known.get(files.eos_token)
    ids = files.eos_ids if own is None else (*files.eos_ids, own)
    if not ids:
        raise UnsupportedTokenizer("no end token: neither an eos_token nor an eos_token_id of the model is in it")
    return tuple(dict.fromkeys(ids))


def _replace_surrogates(text: str) -> str:
    """JSON can carry halves of UTF-16 pairs, which UTF-8 cannot; two that fit become their character, others U+FFFD."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text

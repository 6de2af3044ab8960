"""A copy of a tokenizer.json in which control tokens have names that nobody can type.

The tokenizers library finds added tokens by their text, and some models (Unigram, BPE with `ignore_merges`) find them in the model's own
vocabulary even when they are not added ones. So each guarded token is renamed in both places to a random name made when the model is
loaded; ids, order and the flags that govern the white space around a token stay. In such a tokenizer `<|im_end|>` is plain text.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping
from typing import Any

from tokenizers import Tokenizer

from router.text.vocabulary import UnsupportedTokenizer, added_tokens_of


def seal_names(tokenizer_json: Mapping[str, Any]) -> dict[str, str]:
    """A new secret name for each guarded token, by its text; all of one length, so none begins another. Raises UnsupportedTokenizer."""
    secret = secrets.token_hex(16)
    guarded = [it for it in added_tokens_of(tokenizer_json) if it.guarded]
    if single := [it.id for it in guarded if len(it.text) < 2]:
        raise UnsupportedTokenizer(f"the control token with id {single[0]} is a single character, which callers may write")
    return {it.text: f"{secret}{it.id:08x}" for it in guarded}


def build_sealed(tokenizer_json: Mapping[str, Any], names: Mapping[str, str]) -> Tokenizer:
    """The tokenizer with the names in place. It neither truncates nor pads nor adds tokens. Raises UnsupportedTokenizer."""
    added = [_rename_added(it, names) for it in tokenizer_json["added_tokens"]]
    changes = {"added_tokens": added, "model": _rename_model(tokenizer_json["model"], names)}
    plain = {"truncation": None, "padding": None, "post_processor": None}
    try:
        tokenizer = Tokenizer.from_str(json.dumps({**tokenizer_json, **changes, **plain}))
    # The library has no class of its own for this.
    except Exception as error:
        raise UnsupportedTokenizer(f"the tokenizers library does not read it: {error}") from error
    for token in added:
        if tokenizer.token_to_id(token["content"]) != token["id"]:
            raise UnsupportedTokenizer(f"the added token with id {token['id']} does not keep its id")
    return tokenizer


def _rename_added(token: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    name = names.get(token["content"])
    # A normalizer must not touch the name.
    return dict(token) if name is None else {**token, "content": name, "normalized": False}


def _rename_model(model: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    if model["type"] == "Unigram":
        return {**model, "vocab": [[names.get(text, text), score] for text, score in model["vocab"]]}
    unknown = model.get("unk_token") or ""
    return {
        **model,
        "vocab": {names.get(text, text): token for text, token in model["vocab"].items()},
        "merges": [merge for merge in model["merges"] if not _touches(merge, names)],
        "unk_token": names.get(unknown, unknown) or None,
    }


def _touches(merge: str | list[str], names: Mapping[str, str]) -> bool:
    """Whether the merge makes or uses a renamed token; older files write it as one string with a space."""
    left, right = merge.split(" ") if isinstance(merge, str) else merge
    return left in names or right in names or left + right in names

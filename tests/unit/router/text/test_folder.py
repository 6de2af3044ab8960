"""Model folders: what is read, and errors that name the file."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from router.text.folder import InvalidModel
from router.text.tokenizer import Tokenizer
from tests.models import CONTEXT, build_chatml_model

HELLO = [{"role": "user", "content": "hello"}]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return build_chatml_model(tmp_path / "model")


def edit(path: Path, **fields: Any) -> None:
    """Set fields of a JSON file; None takes one away."""
    value = json.loads(path.read_text(encoding="utf-8")) | fields
    kept = {name: field for name, field in value.items() if field is not None}
    path.write_text(json.dumps(kept), encoding="utf-8")


def test_the_limits_of_the_model_are_read(folder: Path) -> None:
    """Context, vocabulary and end tokens are those of the folder."""
    tokenizer = Tokenizer.load(folder)
    assert (tokenizer.context, tokenizer.vocab_size) == (CONTEXT, len(tokenizer.token_bytes))
    assert (tokenizer.eos_ids, tokenizer.control_ids) == ((2, 0), frozenset({0, 1, 2}))


@pytest.mark.parametrize(("stated", "ids"), [(0, (0, 2)), ([0, 1], (0, 1, 2)), (None, (2,))])
def test_end_tokens_are_one_or_several_and_always_the_tokenizers_own(folder: Path, stated: Any, ids: tuple[int, ...]) -> None:
    """The one that generation_config.json names first is the main one."""
    edit(folder / "generation_config.json", eos_token_id=stated)
    assert Tokenizer.load(folder).eos_ids == ids


def test_the_configuration_names_the_end_token_where_nothing_else_does(folder: Path) -> None:
    """generation_config.json is optional."""
    (folder / "generation_config.json").unlink()
    edit(folder / "config.json", eos_token_id=1)
    assert Tokenizer.load(folder).eos_ids == (1, 2)


def test_a_template_file_goes_before_the_field(folder: Path) -> None:
    """Newer models keep the template in a file of its own."""
    (folder / "chat_template.jinja").write_text("{{ messages[0].content }}", encoding="utf-8")
    tokenizer = Tokenizer.load(folder)
    assert tokenizer.encode_chat(HELLO) == tokenizer.encode_text("hello")


def test_the_default_of_several_named_templates_is_taken(folder: Path) -> None:
    """Some models have one for tools beside it."""
    named = [{"name": "tool_use", "template": "no"}, {"name": "default", "template": "yes"}]
    edit(folder / "tokenizer_config.json", chat_template=named)
    tokenizer = Tokenizer.load(folder)
    assert tokenizer.encode_chat(HELLO) == tokenizer.encode_text("yes")


def test_truncation_stated_in_the_file_does_not_shorten_prompts(folder: Path) -> None:
    """Some published tokenizers carry the settings of their training."""
    truncation = {"direction": "Right", "max_length": 4, "strategy": "LongestFirst", "stride": 0}
    edit(folder / "tokenizer.json", truncation=truncation)
    assert len(Tokenizer.load(folder).encode_text("a b c d e f")) == 11


@pytest.mark.parametrize("name", ["tokenizer.json", "tokenizer_config.json", "config.json"])
def test_a_missing_file_is_named(folder: Path, name: str) -> None:
    """A router never runs without a tokenizer."""
    (folder / name).unlink()
    with pytest.raises(InvalidModel, match=f"{name} cannot be read: No such file"):
        Tokenizer.load(folder)


@pytest.mark.parametrize(
    ("name", "text", "fault"),
    [
        ("tokenizer.json", "{", "is not JSON"),
        ("tokenizer.json", "[]", "must hold a JSON object"),
        ("tokenizer.json", '{"decoder": {"type": "ByteLevel"}}', "lacks the field"),
        ("config.json", '{"vocab_size": 9}', "max_position_embeddings must be a whole number"),
        ("config.json", '{"max_position_embeddings": 9, "vocab_size": "x"}', "vocab_size must be a whole number"),
        ("tokenizer_config.json", "{}", "has no chat_template"),
        ("chat_template.jinja", "{% if %}", "chat template cannot be compiled"),
    ],
)
def test_a_broken_file_is_named(folder: Path, name: str, text: str, fault: str) -> None:
    """The message says what is wrong in it."""
    (folder / name).write_text(text, encoding="utf-8")
    with pytest.raises(InvalidModel, match=fault) as caught:
        Tokenizer.load(folder)
    assert name in str(caught.value) or name == "chat_template.jinja"


def test_bytes_that_are_not_utf8_are_an_error_of_their_file(folder: Path) -> None:
    """Also in the template's file."""
    (folder / "chat_template.jinja").write_bytes(b"\xff")
    with pytest.raises(InvalidModel, match=r"chat_template\.jinja is not UTF-8"):
        Tokenizer.load(folder)


def test_a_model_without_an_end_token_is_refused(folder: Path) -> None:
    """Its answers would never end."""
    (folder / "generation_config.json").unlink()
    edit(folder / "tokenizer_config.json", eos_token=None)
    with pytest.raises(InvalidModel, match="no end token"):
        Tokenizer.load(folder)


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        (lambda source: source.update(decoder={"type": "WordPiece", "prefix": "##"}), "WordPiece"),
        (lambda source: source["model"].update(vocab={"a": "b"}), "does not read it"),
        (lambda source: source["added_tokens"][0].update(id=200), "keep its id"),
        (lambda source: source["added_tokens"][0].update(content="!"), "single character"),
    ],
)
def test_a_tokenizer_that_cannot_be_served_safely_is_refused(folder: Path, change: Callable[[dict[str, Any]], None], fault: str) -> None:
    """What is not understood is an error at start, never a guess."""
    path = folder / "tokenizer.json"
    source = json.loads(path.read_text(encoding="utf-8"))
    change(source)
    path.write_text(json.dumps(source), encoding="utf-8")
    with pytest.raises(InvalidModel, match=rf"tokenizer\.json.*{fault}"):
        Tokenizer.load(folder)

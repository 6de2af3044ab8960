"""The OpenAPI document and the page that shows it."""

from __future__ import annotations

import json
import re
from importlib.resources import files

from router.transport.http.chat import ChatRequest
from router.transport.http.completions import CompletionRequest
from router.transport.http.openapi import describe_api

DOCUMENT = describe_api()


def test_all_that_is_referred_to_is_there() -> None:
    """Every reference ends at a schema of the document."""
    written = json.dumps(DOCUMENT)
    names = set(re.findall(r'"\$ref": "#/components/schemas/(\w+)"', written))
    assert names == set(DOCUMENT["components"]["schemas"])
    assert written.count("$ref") == len(re.findall(r'"#/components/schemas/\w+"', written))


def test_the_models_that_check_are_the_models_that_are_told() -> None:
    """Every option is in the document, and no other is taken."""
    for model in (ChatRequest, CompletionRequest):
        schema = DOCUMENT["components"]["schemas"][model.__name__]
        assert set(schema["properties"]) == set(model.model_fields)
        assert schema["additionalProperties"] is False


def test_what_is_ignored_says_so() -> None:
    """An option without effect is told apart from one that works."""
    options = DOCUMENT["components"]["schemas"]["ChatRequest"]["properties"]
    ignored = {name for name, told in options.items() if "ignored" in told.get("description", "")}
    assert ignored == {"user", "metadata", "safety_identifier", "prompt_cache_key", "service_tier", "reasoning_effort"}


def test_the_page_needs_nothing_from_elsewhere() -> None:
    """It works on a machine without the internet, and shows what it read as text, never as markup."""
    page = (files("router.transport.http") / "docs.html").read_text()
    assert not re.findall(r"https?://", page)
    assert "innerHTML" not in page

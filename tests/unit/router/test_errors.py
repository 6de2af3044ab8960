"""Refusals fit into the headers of any client, whatever the request held."""

from __future__ import annotations

import base64
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.errors import MOST_VIOLATIONS, CallerError, Code, TidegateError, Violation, field_invalid, guide_invalid
from router.transport.http.errors import to_object
from router.transport.status import to_status

HEADERS = 8 * 1024
"""What gRPC's C core takes of headers, and of trailers; it refuses some that are longer."""

TEXTS = st.text(max_size=20).map(lambda text: text * 200) | st.text(max_size=50) | st.just("\ud800" * 3000)
VIOLATIONS = st.lists(st.builds(Violation, TEXTS, TEXTS), min_size=1, max_size=4).map(lambda them: them * 70)


def wire_size(error: TidegateError) -> int:
    """Bytes of the message and the details as gRPC writes them into trailers."""
    status = to_status(error, "r" * 64)
    return len(quote(status.message, safe=" !\"#$&'()*+,/:;<=>?@[\\]^`{|}")) + len(base64.b64encode(status.SerializeToString()))


@given(VIOLATIONS, st.integers(0, 10**9))
def test_a_refusal_of_any_request_fits(violations: list[Violation], more: int) -> None:
    """With every field as long as it may be, and more of them than can be told."""
    error = field_invalid(*violations, more=more)
    status = to_status(error, "request-1")
    assert len(status.message.encode()) <= 1024
    assert sum(len(detail.SerializeToString()) for detail in status.details) <= 4096
    assert wire_size(error) < HEADERS


@given(TEXTS)
def test_a_refusal_with_one_long_text_fits(text: str) -> None:
    """As of a grammar that cannot be compiled."""
    assert wire_size(guide_invalid(text)) < HEADERS
    assert wire_size(CallerError(Code.NOT_FOUND, "X", text, violations=(Violation(text, text),))) < HEADERS


@pytest.mark.parametrize("count", [1, MOST_VIOLATIONS, MOST_VIOLATIONS + 1, 5000])
def test_the_first_faults_are_told_and_how_many_more_there_are(count: int) -> None:
    """By every door, in words and in details."""
    error = field_invalid(*(Violation(f"messages[{at}].role", "must be set") for at in range(count)))
    told = min(count, MOST_VIOLATIONS)
    assert [it.field for it in error.violations] == [f"messages[{at}].role" for at in range(told)]
    assert error.more == count - told
    for message in (error.message, to_object(error)["error"]["message"]):
        assert message.startswith("messages[0].role: must be set")
        assert (f"and {count - told} more" in message) == (count > told)


def test_short_texts_are_told_as_they_are() -> None:
    """Letters of all scripts too."""
    error = field_invalid(Violation("messages[0].größe", "must be 🌊 at 100 %"))
    assert error.message == "messages[0].größe: must be 🌊 at 100 %"
    assert error.violations == (Violation("messages[0].größe", "must be 🌊 at 100 %"),)

"""What is refused, and how: with a place and a reason, and without the caller's words."""

from __future__ import annotations

import pytest

from server.engine.base import Guide, GuideKind, RequestRefused
from server.guides import compile_guide
from tests.unit.server.guides.poison import POISON


@pytest.mark.parametrize("name", POISON)
def test_poison_is_refused_with_its_place(name: str) -> None:
    """The message begins with the option's name, then says where and what."""
    guide, reason = POISON[name]
    with pytest.raises(RequestRefused) as refused:
        compile_guide(guide)
    prefix, _, rest = str(refused.value).partition(": ")
    assert prefix == "guided_decoding_guide"
    assert reason in rest
    assert len(rest) < 350


def test_long_names_are_not_repeated() -> None:
    """Only short plain names come back; longer ones, and words, could be a prompt."""
    secret = "my password is hunter2"
    with pytest.raises(RequestRefused) as refused:
        compile_guide(Guide(GuideKind.JSON_SCHEMA, f'{{"type":"object","properties":{{"{secret}":{{"type":"{secret}"}}}}}}'))
    assert "hunter2" not in str(refused.value)
    assert "#/properties/…/type: must be" in str(refused.value)


def test_a_long_pointer_loses_its_beginning() -> None:
    """The end of a place tells most."""
    text = '{"properties":{"level":' * 30 + '{"type":"x"}' + "}}" * 30
    with pytest.raises(RequestRefused) as refused:
        compile_guide(Guide(GuideKind.JSON_SCHEMA, text))
    assert "guided_decoding_guide: …" in str(refused.value)
    assert "/properties/level/type: must be" in str(refused.value)

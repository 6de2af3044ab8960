"""What probes find out about templates."""

from __future__ import annotations

import pytest

from router.text.template import ChatTemplate
from router.text.traits import SystemPlace, TemplateRefused, TemplateTraits, probe_template

CALLS = "{% for call in m.tool_calls %}[{{ call.function.name }}CALL]{% endfor %}"
EACH = "{% for m in messages %}{{ m.role }}:CONTENT" + CALLS + ";{% endfor %}"


def probe(source: str) -> TemplateTraits:
    return probe_template(ChatTemplate(source).fill)


@pytest.mark.parametrize(
    ("written", "takes_null"),
    [
        ("{{ m.content }}", False),
        ("{{ '' ~ m.content }}", False),
        ("{{ '' + m.content }}", False),
        ("{{ m.content | tojson }}", False),
        ("{% if m.content %}{{ m.content }}{% endif %}", True),
        ("{% if m.content is not none %}{{ m.content }}{% endif %}", True),
        ("{% if m.content is not none %}{{ m.content }}{% endif %} None null", True),
    ],
)
def test_null_content_is_taken_if_it_prints_nothing(written: str, takes_null: bool) -> None:
    """Not if the template raises, or writes None or null for it; words of its own do not count."""
    assert probe(EACH.replace("CONTENT", written).replace("CALL", "")).null_content is takes_null


@pytest.mark.parametrize(
    ("written", "takes_object"),
    [
        ("{{ call.function.arguments | tojson }}", True),
        ("{% for key, value in call.function.arguments | items %}{{ key }}={{ value }}{% endfor %}", True),
        ("{{ '' + call.function.arguments }}", False),
        ("{{ call.function.arguments }}", False),
    ],
)
def test_arguments_are_objects_if_the_template_writes_them_as_json_or_one_by_one(written: str, takes_object: bool) -> None:
    """Not if it raises for an object, or writes it as Python does."""
    assert probe(EACH.replace("CONTENT", "").replace("CALL", written)).object_arguments is takes_object


def test_a_template_that_refuses_all_but_one_user_message_can_be_probed() -> None:
    """Its traits are those that ask the least of it."""

    def fill(messages: object, *, tools: object = None) -> str:
        raise TemplateRefused("no")

    assert probe_template(fill) == TemplateTraits(
        SystemPlace.NOWHERE, null_content=False, object_arguments=False, writes_calls=False, parallel_calls=False
    )

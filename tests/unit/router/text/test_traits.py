"""What probes find out about templates."""

from __future__ import annotations

import pytest

from router.text.call_format import HERMES, LLAMA, MISTRAL
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


TOOLS = "{% if tools %}{{ tools | tojson }}{% endif %}"
WAYS = {
    "hermes": (
        '<tool_call>\n{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}\n</tool_call>',
        HERMES,
    ),
    "hermes, arguments first": (
        '<tool_call>\n{ "arguments": {{ call.function.arguments | tojson }}, "name": "{{ call.function.name }}"}\n</tool_call>',
        HERMES,
    ),
    "mistral": ('[TOOL_CALLS] [{{ (call.function | tojson)[:-1] }}, "id": "{{ call.id }}"}]', MISTRAL),
    "llama": ('{"name": "{{ call.function.name }}", "parameters": {{ call.function.arguments | tojson }}}', LLAMA),
    "xml inside": ("<tool_call>\n<function={{ call.function.name }}>\n</function>\n</tool_call>", None),
    "our own words": ("{{ call.function.name }}({{ call.function.arguments | tojson }})", None),
}


@pytest.mark.parametrize("way", WAYS)
def test_the_way_of_writing_calls_is_found(way: str) -> None:
    """If it is one that can be read in an answer."""
    written, form = WAYS[way]
    source = TOOLS + "{% for m in messages %}{{ m.content }}{% for call in m.tool_calls %}" + written + "{% endfor %}{% endfor %}"
    traits = probe(source)
    assert (traits.calls, traits.writes_calls, traits.parallel_calls) == (form, True, True)
    assert probe(source.replace(TOOLS, "")).calls is None


def test_a_template_that_writes_no_calls_is_known_as_such() -> None:
    """It prints a message's content whatever else is in it."""
    traits = probe(TOOLS + "{% for m in messages %}{{ m.content }}{% endfor %}")
    assert (traits.calls, traits.writes_calls) == (None, False)


def test_a_template_may_take_only_one_call_at_a_time() -> None:
    """As Llama's do."""
    refusal = "{% if m.tool_calls and m.tool_calls | length > 1 %}{{ raise_exception('one at a time') }}{% endif %}"
    assert not probe("{% for m in messages %}{{ m.content }}" + refusal + "{% endfor %}").parallel_calls

"""Chat templates in their sandbox: Hugging Face's conventions, and every error a refusal."""

from __future__ import annotations

from datetime import datetime

import pytest

from router.text.template import ChatTemplate, InvalidTemplate, TemplateRefused

USER = [{"role": "user", "content": "secret words"}]


def render(source: str, content: str = "x", tools: list[dict[str, object]] | None = None) -> str:
    return ChatTemplate(source).fill([{"role": "user", "content": content}], tools=tools)


def refusal_of(source: str) -> str:
    """What the template says of a conversation that is not its probe."""
    template = ChatTemplate("{% if 'secret' in messages[0].content %}" + source + "{% endif %}")
    with pytest.raises(TemplateRefused) as caught:
        template.render(USER)
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__
    return str(caught.value)


def test_block_lines_leave_no_white_space() -> None:
    """Templates are written for trim_blocks and lstrip_blocks."""
    assert render("{% for m in messages %}\n    {% if true %}\n{{ m.content }}\n    {% endif %}\n{% endfor %}\n") == "x\n"


def test_loops_can_break_and_continue() -> None:
    """Hugging Face turns loop controls on."""
    assert (
        render("{% for i in range(9) %}{% if i == 1 %}{% continue %}{% endif %}{% if i > 3 %}{% break %}{% endif %}{{ i }}{% endfor %}")
        == "023"
    )


def test_generation_blocks_are_their_body() -> None:
    """They only matter in training."""
    assert render("{% generation %}{{ messages[0].content }}{% endgeneration %}") == "x"


def test_json_is_neither_escaped_for_html_nor_to_ascii() -> None:
    """Models were trained on plain JSON."""
    assert render("{{ tools | tojson }}", tools=[{"n": "<é'>"}]) == '[{"n": "<é\'>"}]'


def test_json_can_be_indented() -> None:
    """The arguments of Hugging Face's filter are known."""
    assert render("{{ tools | tojson(indent=2) }}", tools=[]) == "[]"


def test_special_tokens_and_the_generation_prompt_reach_the_template() -> None:
    """Under Hugging Face's names."""
    template = ChatTemplate("{{ bos_token }}|{{ eos_token }}|{{ add_generation_prompt }}", bos_token="<s>", eos_token="</s>")
    assert template.render(USER) == "<s>|</s>|True"
    assert template.render(USER, add_generation_prompt=False) == "<s>|</s>|False"


def test_the_date_comes_from_the_clock_passed_in() -> None:
    """So that a test, or a replay, has the date it wants."""
    template = ChatTemplate("{{ strftime_now('%d %b %Y') }}", clock=lambda: datetime(2024, 7, 26))
    assert template.render(USER) == "26 Jul 2024"


def test_a_refusal_is_in_the_words_of_the_template() -> None:
    """What the author wrote for this case helps the caller."""
    assert refusal_of("{{ raise_exception('Roles must alternate') }}") == "Roles must alternate"


def test_a_refusal_never_holds_the_prompt() -> None:
    """Words that the template joins to its own are cut off."""
    assert refusal_of("{{ raise_exception('Cannot say: ' ~ messages[0].content) }}") == "Cannot say:"
    assert "words" not in refusal_of("{{ raise_exception(messages[0].content ~ '?') }}")


@pytest.mark.parametrize(
    "source",
    [
        "{{ range(10**9) | list }}",
        "{{ ''.__class__.__mro__ }}",
        "{{ messages.append(1) }}",
        "{{ messages[0].content + 1 }}",
        "{{ nothing.at.all }}",
        "{{ 1 / 0 }}",
        "{{ messages[9].content }}",
        "{{ nothing | tojson }}",
        "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
        "{% include 'x' %}",
    ],
)
def test_every_error_of_a_template_is_a_refusal_without_the_prompt(source: str) -> None:
    """Endless ranges, forbidden attributes, changed arguments, wrong types: none becomes an error of the router."""
    assert "words" not in refusal_of(source)


def test_a_template_that_cannot_be_compiled_is_invalid() -> None:
    """This is the operator's error, found at start."""
    with pytest.raises(InvalidTemplate, match="cannot be compiled"):
        ChatTemplate("{% if %}")


def test_a_template_that_refuses_a_plain_message_is_invalid() -> None:
    """It would refuse every request."""
    with pytest.raises(InvalidTemplate, match="never works"):
        ChatTemplate("{{ raise_exception('never works') }}")

"""Stop texts: nothing of a match is shown, nothing else is withheld."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.text.stops import StopMatcher

# Few letters, so that stops overlap each other and the text.
TEXTS = st.text(alphabet="ab🔥", max_size=12)
STOPS = st.lists(st.text(alphabet="ab🔥", min_size=1, max_size=4), max_size=4)


def run(stops: list[str], pieces: list[str]) -> tuple[str, str | None]:
    """All text that was shown, and the stop."""
    matcher, shown = StopMatcher(stops), ""
    for piece in pieces:
        text, stop = matcher.feed(piece)
        shown += text
        if stop is not None:
            return shown, stop
    return shown + matcher.flush(), None


def find_stop(stops: list[str], text: str) -> tuple[str, str | None]:
    """The rule, word by word: of all matches the one that ends first, of those the longest."""
    found = [(text.find(stop) + len(stop), -len(stop), stop) for stop in stops if stop in text]
    if not found:
        return text, None
    end, _, stop = min(found)
    return text[: end - len(stop)], stop


@given(STOPS, st.lists(TEXTS, max_size=6))
def test_the_cut_of_the_text_does_not_matter(stops: list[str], pieces: list[str]) -> None:
    """Any stops in any text, cut anyhow, give what a search in the whole text gives."""
    assert run(stops, pieces) == find_stop(stops, "".join(pieces))


@given(STOPS, TEXTS)
def test_only_a_possible_beginning_is_held_back(stops: list[str], text: str) -> None:
    """While there is no match, what is held is the longest end of the text that a stop begins with, and no more."""
    matcher = StopMatcher(stops)
    shown, stop = matcher.feed(text)
    held = text[len(shown) :]
    begins = [text[at:] for at in range(len(text)) if any(it.startswith(text[at:]) for it in stops)]
    assert stop is not None or held == (begins[0] if begins else "")


def test_text_before_the_stop_is_shown_and_text_behind_it_dropped() -> None:
    """The stop itself is not shown either."""
    assert StopMatcher(["END"]).feed("one END two") == ("one ", "END")


def test_a_held_beginning_is_released_when_the_answer_ends() -> None:
    """`AB D` with the stop `DEF` comes out whole."""
    assert run(["DEF"], ["AB D"]) == ("AB D", None)


def test_a_held_beginning_is_released_in_order_when_it_goes_on_otherwise() -> None:
    """What was held comes before what follows it."""
    matcher = StopMatcher(["DEF"])
    assert [matcher.feed(piece) for piece in ("AB D", "E", "X")] == [("AB ", None), ("", None), ("DEX", None)]


def test_of_stops_that_end_together_the_longest_counts() -> None:
    """So that nothing of it is shown."""
    assert run(["###", "\n###"], ["a\n", "##", "#"]) == ("a", "\n###")


def test_a_stop_inside_the_beginning_of_another_counts() -> None:
    """It is complete, the longer one is not."""
    assert run(["abc", "b"], ["xa", "bd"]) == ("xa", "b")


def test_a_stop_is_recognised_with_its_last_character() -> None:
    """The answer need not go on to see whether a longer stop would follow."""
    assert StopMatcher(["\n", "\n\n"]).feed("a\n") == ("a", "\n")


def test_without_stops_text_passes() -> None:
    """Nothing is held, whatever comes."""
    matcher = StopMatcher([])
    assert (matcher.feed("abc"), matcher.flush()) == (("abc", None), "")


def test_an_empty_stop_is_refused_by_its_place() -> None:
    """It would end every answer at once."""
    with pytest.raises(ValueError, match=r"stop\[1\] is empty"):
        StopMatcher(["a", ""])

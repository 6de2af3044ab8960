"""Workers come, drain and go."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.routing.table import Changes, Phase, WorkerTable


def make_table(*addresses: str, now: float = 0.0) -> WorkerTable:
    """Of workers that are up."""
    table = WorkerTable(slow_start_s=30.0)
    table.update(addresses, now)
    for address in addresses:
        table.note(address, now, up=True)
    return table


def test_workers_join_and_leave_while_others_serve() -> None:
    """An update names all; what is new and what is gone is told."""
    table = make_table("a", "b")
    assert table.update(["b", "c"], 1.0) == Changes(["c"], ["a"])
    assert table.update(["b", "c"], 2.0) == Changes([], [])
    assert table.list_serving() == ["b"]
    table.note("c", 3.0, up=True)
    assert table.list_serving() == ["b", "c"]
    assert list(table) == ["a", "b", "c"]


def test_a_leaving_worker_ends_its_turns() -> None:
    """It is gone when it runs none, or has had its time."""
    table = make_table("a", "b", "c")
    table.update(["c"], 10.0)
    assert table.remove_gone({"a": 3, "b": 0, "c": 0}.__getitem__, 11.0, 30.0) == ["b"]
    assert (table.find_phase("a"), table.find_phase("b"), len(table)) == (Phase.LEAVING, None, 2)
    assert table.remove_gone({"a": 3, "c": 0}.__getitem__, 40.0, 30.0) == ["a"]
    assert list(table) == ["c"]


def test_a_worker_that_comes_back_in_time_never_left() -> None:
    """It is still up, and no second one is made."""
    table = make_table("a", "b")
    table.update(["b"], 1.0)
    assert table.update(["a", "b"], 2.0) == Changes([], [])
    assert table.list_serving() == ["a", "b"]


def test_a_drained_worker_gets_no_turns_until_it_resumes() -> None:
    """Whatever discovery says meanwhile, and whether it was there before or not."""
    table = make_table("a", "b")
    table.set_drained(["a"])
    table.update(["b"], 1.0)
    assert table.find_phase("a") is Phase.LEAVING
    table.update(["a", "b"], 2.0)
    assert (table.list_serving(), table.find_phase("a")) == (["b"], Phase.DRAINING)
    table.update(["b"], 3.0)
    table.remove_gone(lambda _: 0, 3.0, 30.0)
    table.update(["a", "b"], 4.0)
    table.note("a", 5.0, up=True)
    assert (table.list_serving(), table.find_phase("a")) == (["b"], Phase.DRAINING)
    table.set_drained([])
    assert table.list_serving() == ["b", "a"]


def test_what_is_said_of_an_unknown_worker_changes_nothing() -> None:
    """Nobody comes by being drained, or being said to be up."""
    table = make_table("a")
    table.set_drained(["x"])
    table.note("x", 0.0, up=True)
    assert (list(table), table.list_serving(), table.find_phase("x")) == (["a"], ["a"], None)


def test_a_new_worker_is_warmed_slowly() -> None:
    """From a tenth to one within half a minute of its coming up; a break begins it anew."""
    table = make_table("old")
    table.update(["old", "new"], 100.0)
    for now, weight in ((100.0, 0.1), (115.0, 0.5), (130.0, 1.0), (500.0, 1.0)):
        table.note("new", now, up=True)
        assert table.weigh(table.list_serving(), now) == {"old": 1.0, "new": pytest.approx(weight)}
    table.note("new", 600.0, up=False)
    assert table.list_serving() == ["old"]
    table.note("new", 601.0, up=True)
    assert table.weigh(["new"], 601.0) == {"new": 1.0}
    assert table.weigh(["old", "new"], 601.0)["new"] == pytest.approx(0.1)


def test_without_slow_start_a_new_worker_counts_at_once() -> None:
    """A time of zero is none."""
    table = WorkerTable(slow_start_s=0.0)
    table.update(["old", "new"], 0.0)
    table.note("old", 0.0, up=True)
    table.note("new", 5.0, up=True)
    assert table.weigh(["old", "new"], 5.0) == {"old": 1.0, "new": 1.0}


def test_workers_that_are_all_new_are_not_held_back() -> None:
    """When the router starts there is nobody else to take the turns."""
    table = make_table("a", "b", now=50.0)
    assert table.weigh(["a", "b"], 50.0) == {"a": 1.0, "b": 1.0}
    assert table.weigh([], 50.0) == {}


@given(
    steps=st.lists(
        st.one_of(
            st.tuples(st.just("update"), st.sets(st.sampled_from("abcd"))),
            st.tuples(st.sampled_from(["drain", "resume", "up", "down", "remove"]), st.sampled_from("abcd")),
        ),
        max_size=40,
    )
)
def test_only_those_that_are_there_and_up_serve(steps: list[tuple[str, set[str] | str]]) -> None:
    """Whatever happened before: discovered, up, and not drained; with weights over zero, of which one is whole."""
    table, present, up, drained = WorkerTable(), set[str](), set[str](), set[str]()
    for now, (name, about) in enumerate(steps):
        match name:
            case "update":
                before = set(table)
                assert set(table.update(about, now).joined) == set(about) - before
                present = set(about)
            case "drain" | "resume":
                drained = drained | {str(about)} if name == "drain" else drained - {str(about)}
                table.set_drained(drained)
            case "up" | "down":
                table.note(str(about), now, up=name == "up")
                up = up | ({str(about)} & set(table)) if name == "up" else up - {str(about)}
            case "remove":
                table.remove_gone(lambda _: 0, now, 1e9)
        up &= set(table)
        serving = table.list_serving()
        assert set(serving) == (present & up) - drained
        weights = table.weigh(serving, now)
        assert all(0 < weight <= 1 for weight in weights.values())
        assert max(weights.values(), default=1.0) == 1.0

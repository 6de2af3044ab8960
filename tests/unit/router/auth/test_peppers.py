"""Changing the pepper that keys are hashed under, while routers run that know it and others that do not."""

from __future__ import annotations

import random
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from router.auth.keys import PEPPER_VARIABLE, PREVIOUS_VARIABLE, KeyHash, load_peppers
from router.auth.renewals import Renewals
from router.errors import CallerError
from router.store.database import StoreAway
from router.store.rows import KeyDigests, KeyRow
from tests.bench.waiting import until
from tests.unit.router.auth.bench import KEYS, NEW, NEWER, OLD, START, FakeKeys, build_gate, row_of

NOW = datetime.fromtimestamp(START, UTC)
BOTH = KeyHash(NEW, OLD)
AFTER = KeyHash(NEW)


async def test_a_key_of_the_old_pepper_gets_the_new_one_as_it_is_used() -> None:
    """It works at once and throughout; it is written once, and a router that knows the old pepper alone recognises it as before."""
    keys = FakeKeys()
    one, other = await build_gate(hashing=BOTH, keys=keys, poll_s=0.001), await build_gate(keys=keys)
    key = keys.add()
    async with one.directory.running():
        for gate in (one, other, one):
            assert (await gate.ask(f"Bearer {key.text}")).user == "ann"
        await until(lambda: keys.renewed != [])
        for gate in (one, other):
            await gate.directory.poll()
            assert (await gate.ask(f"Bearer {key.text}")).user == "ann"
    assert keys.renewed == [key.prefix]
    assert keys.rows[key.prefix] == replace(row_of(key), **asdict(BOTH.digests(key.text)))


async def test_a_refused_key_is_not_renewed() -> None:
    """Neither by a wrong text under its prefix nor when it has ended; the next one that is used is."""
    gate = await build_gate(hashing=BOTH, poll_s=0.001)
    good, ended, other = gate.keys.add(), gate.keys.add(revoked_at=NOW), gate.keys.add()
    async with gate.directory.running():
        for text in (good.text[:-1] + "-_"[good.text.endswith("-")], ended.text):
            with pytest.raises(CallerError):
                await gate.ask(f"Bearer {text}")
        await gate.ask(f"Bearer {other.text}")
        await until(lambda: gate.keys.renewed != [])
    assert gate.keys.renewed == [other.prefix]


@pytest.mark.parametrize(
    ("hashing", "stored", "is_old", "is_renewable"),
    [
        (KEYS, KeyDigests(b""), True, True),
        (KEYS, KeyDigests(b"", KEYS.pepper), False, False),
        (KEYS, KeyDigests(b"", KEYS.pepper, b"", AFTER.pepper), False, False),
        (BOTH, KeyDigests(b"", KEYS.pepper), True, True),
        (BOTH, KeyDigests(b"", KEYS.pepper, b"", AFTER.pepper), False, False),
        (BOTH, KeyDigests(b"", AFTER.pepper), False, False),
        (AFTER, KeyDigests(b"", KEYS.pepper, b"", AFTER.pepper), False, True),
        (AFTER, KeyDigests(b"", AFTER.pepper), False, False),
        (KeyHash(NEWER, NEW), KeyDigests(b"", KEYS.pepper, b"", AFTER.pepper), True, True),
    ],
)
def test_which_keys_are_old_and_which_are_renewed(hashing: KeyHash, stored: KeyDigests, is_old: bool, is_renewable: bool) -> None:
    """Renewed is what lacks the pepper of now, and what has one of before too once that is forgotten; never what an older router needs."""
    row = replace(row_of(KEYS.make_key()), **asdict(stored))
    assert (hashing.is_old(row), hashing.is_renewable(row)) == (is_old, is_renewable)


@dataclass(slots=True)
class Fleet:
    """Routers by the peppers that they know, and keys with their texts."""

    routers: list[KeyHash]
    rows: dict[str, KeyRow]
    chance: random.Random

    def make_key(self) -> None:
        key = self.chance.choice(self.routers).make_key()
        self.rows[key.text] = row_of(key)

    def use_keys(self) -> None:
        """Each key at each router, in any order."""
        uses = [(router, text) for router in self.routers for text in self.rows]
        for router, text in self.chance.sample(uses, len(uses)):
            assert router.matches(text, self.rows[text])
            if router.is_renewable(self.rows[text]):
                self.rows[text] = replace(self.rows[text], **asdict(router.digests(text)))

    def roll(self, *peppers: bytes) -> None:
        """Starts the routers anew with these peppers, one after the other, while keys are made and used."""
        for at in self.chance.sample(range(len(self.routers)), len(self.routers)):
            self.routers[at] = KeyHash(*peppers)
            self.make_key()
            if self.chance.random() < 0.7:
                self.use_keys()


@pytest.mark.parametrize("seed", range(50))
def test_a_rotation_disturbs_no_router(seed: int) -> None:
    """In whatever order routers are started anew and keys are made and used, every router recognises every key, through two rotations."""
    fleet = Fleet([KeyHash(OLD)] * 3, {}, random.Random(seed))
    fleet.make_key()
    for now, before in ((NEW, OLD), (NEWER, NEW)):
        fleet.roll(now, before)
        fleet.use_keys()
        assert not any(KeyHash(now).is_old(row) for row in fleet.rows.values())
        fleet.roll(now)
        fleet.use_keys()
        assert {row.pepper for row in fleet.rows.values()} == {KeyHash(now).pepper}
        assert {row.next_digest for row in fleet.rows.values()} == {None}


def test_a_key_that_slept_through_a_rotation_is_recognised_by_any_pepper_of_before() -> None:
    """And then has those that routers agree on."""
    key = KEYS.make_key()
    hashing = KeyHash(NEWER, NEW, OLD)
    assert hashing.matches(key.text, row_of(key))
    assert hashing.digests(key.text) == KeyDigests(
        AFTER.digests(key.text).digest, AFTER.pepper, KeyHash(NEWER).digests(key.text).digest, KeyHash(NEWER).pepper
    )


def test_peppers_come_from_the_environment(tmp_path: Path) -> None:
    """The one of now, or that of the file, and those of before by the order of the variables' names; empty ones are none."""
    previous = {f"{PREVIOUS_VARIABLE}_2": "older", PREVIOUS_VARIABLE: "old", f"{PREVIOUS_VARIABLE}_3": ""}
    assert load_peppers({PEPPER_VARIABLE: "now", **previous}, tmp_path / "pepper") == [b"now", b"old", b"older"]
    (tmp_path / "pepper").write_bytes(b"file\n")
    assert load_peppers(previous, tmp_path / "pepper") == [b"file", b"old", b"older"]
    assert KeyHash(NEW, NEW).digests("x") == AFTER.digests("x")


async def test_renewals_wait_while_the_database_is_away() -> None:
    """A few are written at once, each once, and those that fail again later."""
    written: list[str] = []
    away = True

    async def write(prefix: str, digests: KeyDigests) -> None:
        if away:
            raise StoreAway
        written.append(prefix)

    renewals = Renewals(write, 60.0)
    for number in range(40):
        renewals.note(str(number % 20), KeyDigests(b""))
    with pytest.raises(StoreAway):
        await renewals.write()
    away = False
    await renewals.write()
    assert 0 < len(written) < 20
    await renewals.write()
    await renewals.write()
    assert written == [str(number) for number in range(20)]

"""API keys: their form, their digests, and the directory that remembers them."""

from __future__ import annotations

import asyncio
import stat
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from router.auth.keys import PEPPER_VARIABLE, KeyHash, load_pepper, read_prefix
from router.auth.recent import Recent
from router.errors import CallerError, TidegateError
from tests.unit.router.auth.bench import KEYS, NEW, NEWER, START, build_gate, row_of


def test_a_new_key_has_its_form_and_hides_itself() -> None:
    """The prefix can be read off the text; printing the value shows the prefix only."""
    key = KEYS.make_key()
    assert read_prefix(key.text) == key.prefix
    assert key.text.startswith(f"tg_{key.prefix}_")
    assert key.text not in repr(key)
    assert KEYS.make_key().prefix != key.prefix


def test_a_digest_needs_the_pepper() -> None:
    """A stolen table is worth nothing without it."""
    key = KEYS.make_key()
    assert KEYS.matches(key.text, row_of(key))
    assert not KeyHash(NEW, NEWER).matches(key.text, row_of(key))
    for peppers in ((b"short",), (NEW, b"short")):
        with pytest.raises(ValueError, match="32 bytes"):
            KeyHash(*peppers)


def test_a_salt_stands_for_a_tenant_and_does_not_tell_who_it_is() -> None:
    """It is another for each tenant and under each pepper, and of use for nothing else."""
    again, other = KeyHash(b"q" * 32), KeyHash(b"r" * 32)
    assert KeyHash(b"q" * 32).salt("acme") == again.salt("acme")
    assert len({again.salt("acme"), again.salt("globex"), other.salt("acme"), again.digests("acme").digest.hex()}) == 4
    assert "acme" not in again.salt("acme")


@pytest.mark.parametrize("text", ["", "clé", "x" * 1_000_000, "\ud800", "tg_", "tg_aaaaaaaaaaaa_" + "é" * 43])
def test_any_text_has_a_digest_and_matches_nothing(text: str) -> None:
    """No input raises, and no digest to compare with is never a match."""
    assert KEYS.digests(text)
    assert not KEYS.matches(text, row_of(KEYS.make_key()))
    assert not KEYS.matches(text, None)
    assert read_prefix(text) is None


def test_the_pepper_is_made_once(tmp_path: Path) -> None:
    """For its owner's eyes only; the environment goes before the file."""
    file = tmp_path / "secrets" / "pepper"
    pepper = load_pepper({}, file)
    assert load_pepper({}, file) == pepper
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert [path.name for path in file.parent.iterdir()] == ["pepper"]
    assert load_pepper({PEPPER_VARIABLE: "e" * 32}, file) == b"e" * 32
    assert KeyHash(pepper)


async def test_a_key_is_looked_up_once() -> None:
    """Also when many calls ask at the same time, and also one that does not exist."""
    gate = await build_gate()
    key = gate.keys.add()
    await asyncio.gather(*(gate.ask(f"Bearer {key.text}") for _ in range(50)))
    assert gate.keys.lookups <= 4
    looked_up = gate.keys.lookups
    for _ in range(3):
        with pytest.raises(CallerError):
            await gate.ask(f"Bearer {KEYS.make_key().text[:16]}{key.text[16:]}")
        await gate.ask(f"Bearer {key.text}")
    assert gate.keys.lookups == looked_up + 3


async def test_guesses_do_not_push_out_known_keys() -> None:
    """More unknown prefixes than are remembered cost no good key its place."""
    gate = await build_gate(size=4)
    key = gate.keys.add()
    await gate.ask(f"Bearer {key.text}")
    for _ in range(20):
        with pytest.raises(CallerError):
            await gate.ask(f"Bearer {KEYS.make_key().text}")
    looked_up = gate.keys.lookups
    await gate.ask(f"Bearer {key.text}")
    assert gate.keys.lookups == looked_up


async def test_a_key_is_refused_once_a_poll_has_told_of_its_end() -> None:
    """Revoked or restricted: the next poll forgets what was remembered; one made after being guessed is found."""
    gate = await build_gate()
    key = gate.keys.add()
    await gate.ask(f"Bearer {key.text}")
    gate.keys.change(replace(gate.keys.rows[key.prefix], models=["m"]))
    await gate.directory.poll()
    assert (await gate.ask(f"Bearer {key.text}")).models == frozenset({"m"})
    gate.keys.change(replace(gate.keys.rows[key.prefix], revoked_at=datetime.now(UTC)))
    await gate.directory.poll()
    with pytest.raises(CallerError):
        await gate.ask(f"Bearer {key.text}")


async def test_an_expired_key_is_refused_at_that_moment() -> None:
    """Also while it is remembered."""
    gate = await build_gate()
    key = gate.keys.add(expires_at=datetime.fromtimestamp(START + 10, UTC))
    await gate.ask(f"Bearer {key.text}")
    gate.clock.time += 10
    with pytest.raises(CallerError):
        await gate.ask(f"Bearer {key.text}")


async def test_a_disabled_tenant_is_shut_out() -> None:
    """Its keys work no more after the next poll, and again when it is let in."""
    gate = await build_gate()
    key = gate.keys.add()
    for disabled in (["acme"], []):
        gate.keys.disabled = disabled
        await gate.directory.poll()
        if disabled:
            with pytest.raises(CallerError):
                await gate.ask(f"Bearer {key.text}")
    assert (await gate.ask(f"Bearer {key.text}")).tenant == "acme"


async def test_known_keys_are_served_for_a_while_when_the_database_is_away() -> None:
    """An unknown key is then told "not now" without a look-up; after the grace all are; when the database is back all is as before."""
    gate = await build_gate(grace_s=60.0)
    known, unknown = gate.keys.add(), gate.keys.add()
    await gate.ask(f"Bearer {known.text}")
    looked_up, gate.keys.away = gate.keys.lookups, True
    await gate.directory.poll()
    assert (await gate.ask(f"Bearer {known.text}")).key_id == known.prefix
    gate.clock.time += 61
    for key in (known, unknown):
        with pytest.raises(TidegateError) as caught:
            await gate.ask(f"Bearer {key.text}")
        assert caught.value.reason == "IDENTITY_UNKNOWN"
    assert gate.keys.lookups == looked_up
    gate.keys.away = False
    await gate.directory.poll()
    for key in (known, unknown):
        await gate.ask(f"Bearer {key.text}")


async def test_the_database_that_goes_between_polls_is_not_told_to_callers() -> None:
    """They hear that credentials cannot be checked."""
    gate = await build_gate()
    key = gate.keys.add()
    gate.keys.away = True
    with pytest.raises(TidegateError) as caught:
        await gate.ask(f"Bearer {key.text}")
    assert caught.value.reason == "IDENTITY_UNKNOWN"


def test_the_longest_unused_is_forgotten_first() -> None:
    """Reading counts as use."""
    recent: Recent[int] = Recent(2)
    recent.put("a", 1)
    recent.put("b", 2)
    assert recent.get("a") == 1
    recent.put("c", 3)
    assert (recent.get("a"), recent.get("b"), recent.get("c"), len(recent)) == (1, None, 3, 2)

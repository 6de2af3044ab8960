"""What a client shows of itself, and to whom."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from tidegate import PlaintextRefused, Tls
from tidegate.credentials import Credentials, choose_credentials, is_local

NOTHING: Mapping[str, str] = {}
LOCAL = [
    "127.0.0.1:8500",
    "127.8.9.1:1",
    "localhost:8500",
    "[::1]:8500",
    "unix:/run/x",
    "dns:///localhost:1",
    "ipv4:127.0.0.1:1,127.0.0.2:1",
]
REMOTE = [
    "10.0.0.1:8500",
    "gateway:8500",
    "localhost.evil.example:1",
    "[::2]:1",
    "dns:///gateway:1",
    "ipv4:127.0.0.1:1,10.0.0.1:1",
    "127.0.0.1.nip:1",
]


def choose(target: str, *, environment: Mapping[str, str] = NOTHING, **given: Any) -> Credentials:
    return choose_credentials(target, environment=environment, **{"key": None, "token": None, "tls": None, **given})


@pytest.mark.parametrize("target", LOCAL)
def test_this_machine_is_known(target: str) -> None:
    """In every form in which gRPC takes it."""
    assert is_local(target)


@pytest.mark.parametrize("target", REMOTE)
def test_another_machine_is_not_this_one(target: str) -> None:
    """Whatever its name begins with."""
    assert not is_local(target)


def test_a_key_does_not_travel_unencrypted() -> None:
    """Neither does a token; to this machine it may, over TLS, or when the caller insists. Without a key there is nothing to hide."""
    for secret in ({"key": "k"}, {"token": "t"}, {"token": lambda: "t"}, {"environment": {"TIDEGATE_KEY": "e"}}):
        with pytest.raises(PlaintextRefused, match="gateway:8500 unencrypted"):
            choose("gateway:8500", **secret)
    assert choose("127.0.0.1:1", key="k").headers() == {"authorization": "Bearer k"}
    assert choose("gateway:1", key="k", tls=True) == Credentials("k", Tls())
    assert choose("gateway:1", key="k", allow_plaintext=True).tls is None
    assert choose("gateway:1").headers() == {}


def test_the_key_may_come_from_the_environment() -> None:
    """Where the program gives none; an empty one is none on purpose."""
    environment = {"TIDEGATE_KEY": "from-the-environment"}
    assert choose("localhost:1", environment=environment).token == "from-the-environment"
    assert choose("localhost:1", environment=environment, key="mine").token == "mine"
    assert choose("localhost:1", environment=environment, key="").headers() == {}


def test_a_token_may_be_made_anew() -> None:
    """A function is asked for each stream."""
    tokens = iter("ab")
    credentials = choose("localhost:1", token=lambda: next(tokens))
    assert [credentials.headers()["authorization"] for _ in range(2)] == ["Bearer a", "Bearer b"]


def test_key_and_token_exclude_each_other() -> None:
    """One of them would be ignored."""
    with pytest.raises(ValueError, match="not both"):
        choose("localhost:1", key="k", token="t")


def test_a_text_that_is_no_key_is_refused_in_words() -> None:
    """Before gRPC refuses it in its own; a line's end in the environment is no part of a key."""
    with pytest.raises(ValueError, match="this is not a key"):
        choose("localhost:1", key="two words")
    assert choose("localhost:1", environment={"TIDEGATE_KEY": "k\n"}).token == "k"


def test_a_key_is_not_shown() -> None:
    """Where credentials are printed."""
    assert "secret" not in repr(choose("localhost:1", key="secret"))

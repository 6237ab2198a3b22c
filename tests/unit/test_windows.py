"""How room is dealt out, what a process remembers of its queues, and limits as shops give them. No database."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from celery_supervise.errors import ConfigError
from celery_supervise.releasing import dealt
from celery_supervise.windows import FRESH, Windows, limits


@given(st.integers(0, 60), st.lists(st.integers(0, 20), max_size=8))
def test_all_that_can_be_dealt_is(room: int, allowed: list[int]) -> None:
    """Nobody gets more than it is allowed; nothing is left while somebody could have more."""
    shares = dealt(room, allowed)
    assert all(0 <= share <= most for share, most in zip(shares, allowed, strict=True))
    assert sum(shares) == min(room, sum(allowed))


@given(st.integers(0, 60), st.lists(st.integers(0, 20), min_size=2, max_size=8))
def test_nobody_is_two_ahead(room: int, allowed: list[int]) -> None:
    """Who could take more is never more than one behind another, and earlier turns come first."""
    shares = dealt(room, allowed)
    hungry = [share for share, most in zip(shares, allowed, strict=True) if share < most]
    if hungry:
        assert max(shares) - min(hungry) <= 1
        assert hungry == sorted(hungry, reverse=True)


def test_what_is_seen_is_believed_for_a_second() -> None:
    """Then it is counted again; queues are seen apart."""
    now = 100.0
    windows = Windows(10, lambda: now)
    assert (windows.is_full("a"), windows.to_count("a")) == (False, 10)
    windows.counted("a", full=True)
    windows.counted("b", full=None)
    assert (windows.is_full("a"), windows.to_count("a")) == (True, None)
    assert (windows.is_full("b"), windows.to_count("b")) == (False, 10)
    now += FRESH
    assert (windows.is_full("a"), windows.to_count("a")) == (False, 10)


def test_without_a_window_nobody_counts() -> None:
    """As where only reads are made."""
    assert Windows(None).to_count("a") is None


@pytest.mark.parametrize("given_", [3, lambda _owner: 3])
def test_a_number_or_a_function(given_: int | Callable[[str], int]) -> None:
    """Either says how many."""
    limit_of = limits("supervise_owner_open", given_)
    assert limit_of is not None
    assert limit_of("acme") == 3


def test_more_than_the_database_can_count_to() -> None:
    """Is as good as the most that it can."""
    assert (limit := limits("supervise_owner_open", lambda _: 2**70)) is not None
    assert limit("acme") == 2**31 - 1


def test_no_limit() -> None:
    """Not set: there is none; a function may say so for one owner."""
    assert limits("supervise_owner_open", None) is None
    limit_of = limits("supervise_owner_open", lambda _owner: None)
    assert limit_of is not None
    assert limit_of("acme") is None


@pytest.mark.parametrize("wrong", [-1, 2.5, True, "5"])
def test_a_function_that_gives_something_else(wrong: object) -> None:
    """It is told which setting names it, and what it gave."""
    limit_of = limits("supervise_owner_running", lambda _owner: wrong)  # type: ignore[arg-type, return-value]  # wrong
    assert limit_of is not None
    with pytest.raises(ConfigError, match=r"supervise_owner_running.*whole number"):
        limit_of("acme")

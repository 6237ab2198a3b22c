"""What a task and a call say of their jobs: what cannot work is refused where it is written."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest

from celery_supervise import Options
from celery_supervise.errors import InvalidInput
from celery_supervise.intake import MOST
from celery_supervise.options import call_options

NO_COUNTS = [0, -1, True, 1.5, float("nan"), "2", [1], MOST + 1, 2**63]


@pytest.mark.parametrize("name", ["version", "lost_attempts"])
@pytest.mark.parametrize("value", NO_COUNTS, ids=repr)
def test_what_is_no_count(name: str, value: Any) -> None:
    """A whole number from 1 on, that a column can have."""
    with pytest.raises(InvalidInput, match=name):
        Options(**{name: value})


@pytest.mark.parametrize("value", [None, 1, "12", *([one] for one in NO_COUNTS)], ids=repr)
def test_what_are_no_versions(value: Any) -> None:
    """A worker would find out with the first job, and fail on each."""
    with pytest.raises(InvalidInput, match="compatible_with"):
        Options(version=3, compatible_with=value)


@pytest.mark.parametrize("version", [*NO_COUNTS[:-4], "2", MOST + 1, 3], ids=repr)
def test_what_is_migrated_is_another_version(version: Any) -> None:
    """Not its own, and one that a job can have."""
    with pytest.raises(InvalidInput, match="migrate"):
        Options(version=3, migrate={version: lambda _: None})


@pytest.mark.parametrize("name", ["deadline", "max_active", "stall_after", "retry_for"])
@pytest.mark.parametrize("value", [timedelta(0), timedelta.max, 5, "1h", datetime(2026, 1, 1)], ids=repr)  # noqa: DTZ001  # naive
def test_what_is_no_duration(name: str, value: Any) -> None:
    """More than nothing, and not longer than the database's times reach."""
    with pytest.raises(InvalidInput, match=name):
        Options(**{name: value})


@pytest.mark.parametrize("value", [None, [], "now"], ids=repr)
def test_what_is_nothing_to_do_on_a_stall(value: Any) -> None:
    """One of three words."""
    with pytest.raises(InvalidInput, match="on_stall"):
        Options(on_stall=value)


@pytest.mark.parametrize("given", [5, "owner", ["owner"], [("owner", "acme")]], ids=repr)
def test_what_are_no_options_of_a_call(given: Any) -> None:
    """A dict by their names."""
    with pytest.raises(InvalidInput, match="supervise"):
        call_options(given)


@pytest.mark.parametrize("name", ["deadline", "max_active"])
@pytest.mark.parametrize("value", [timedelta(0), timedelta.max, datetime(2026, 1, 1), 5], ids=repr)  # noqa: DTZ001  # naive
def test_what_is_no_time_of_a_call(name: str, value: Any) -> None:
    """Refused at the call."""
    with pytest.raises(InvalidInput, match=name):
        call_options({name: value})

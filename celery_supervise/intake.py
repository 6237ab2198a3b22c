"""What the service is given, checked before anything is written. Pure: what the database must judge, it judges.

Edges check, too, to name the argument that the caller wrote; these are the rules that no route goes round.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta, timezone
from typing import Any

from .errors import InvalidInput
from .lifecycle import LOGGED, State
from .model import MAX_ID_BYTES, STALL_ACTIONS, NewJob
from .moments import seconds
from .reasons import STOP_REASONS
from .values import check_name, check_text
from .wording import none_of, shown

LATEST = datetime(9999, 12, 30, tzinfo=timezone.utc)
"""A later time is another day in some zone, and then in no calendar: it could be written but not read."""
LONGEST = timedelta(days=365_000)
MOST = 2**31 - 1
"""The largest whole number of a column."""
MAX_WHY_BYTES = 2000
MAX_PAGE = 10_000

_NAMES = ("id", "task", "queue", "owner_id", "idempotency_key", "input_version")
_OPTIONAL = frozenset({"owner_id", "idempotency_key", "input_version"})
_TIMES = ("due", "deadline", "start_by")
_DURATIONS = ("max_active", "stall_after")
_NUMBERS = {"task_version": (1, MOST), "lost_limit": (1, MOST), "priority": (-(2**15), 2**15 - 1)}


def check_job(job: NewJob) -> None:
    """Refuse a job that the tables cannot hold, or whose times leave open what is meant. Raises `InvalidInput`."""
    for name in _NAMES:
        value = getattr(job, name)
        if value is not None or name not in _OPTIONAL:
            check_name(name, value)
    for name in _TIMES:
        check_when(name, getattr(job, name))
    for name in _DURATIONS:
        check_duration(name, getattr(job, name))
    if job.on_stall not in STALL_ACTIONS:
        raise InvalidInput("on_stall", none_of(job.on_stall, STALL_ACTIONS))
    for name, (least, most) in _NUMBERS.items():
        _check_number(name, getattr(job, name), least, most)
    if isinstance(job.deadline, timedelta) and job.deadline <= timedelta(0):
        raise InvalidInput("deadline", f"must be in the future, not {seconds(job.deadline)} from now")


def check_when(name: str, value: object) -> None:
    """A time is an aware datetime, or a timedelta from now. Raises `InvalidInput` for `name`."""
    if value is None:
        return
    if isinstance(value, datetime):
        _check_moment(name, value)
    elif isinstance(value, timedelta):
        _check_span(name, value)
    else:
        raise InvalidInput(name, f"must be an aware datetime or a timedelta, not {type(value).__name__}")


def check_extension(name: str, to: object, by: object) -> None:
    """Either a time to move to, called `name`, or a span to add. Raises `InvalidInput`."""
    if (to is None) == (by is None):
        raise InvalidInput(name, f"give either {name}, a time, or by, a span that is added to the present one")
    check_when(name, to)
    check_duration("by", by)
    if isinstance(to, timedelta) and to <= timedelta(0):
        raise InvalidInput(name, f"must be in the future, not {seconds(to)} from now")


def _check_moment(name: str, value: datetime) -> None:
    if value.utcoffset() is None:
        raise InvalidInput(name, "must have a time zone: a naive datetime means another instant on each host")
    try:
        late = value.astimezone(timezone.utc) > LATEST
    except OverflowError:
        late = value.year > 1  # the zone takes it out of the calendar at one of its two ends
    if late:
        raise InvalidInput(name, f"must be before {LATEST:%Y-%m-%d}")


def _check_span(name: str, value: timedelta) -> None:
    if not -LONGEST <= value <= LONGEST:
        raise InvalidInput(name, f"must be within {LONGEST.days} days")


def check_positive(name: str, value: Any) -> None:
    """A duration is a timedelta of more than nothing; None: not given. Raises `InvalidInput` for `name`."""
    if value is None:
        return
    if not isinstance(value, timedelta):
        raise InvalidInput(name, f"must be a timedelta, not {type(value).__name__}")
    if value <= timedelta(0):
        raise InvalidInput(name, f"must be greater than 0, not {seconds(value)}")


def check_duration(name: str, value: Any) -> None:
    """As `check_positive`, and not longer than a time of the database's can be. Raises `InvalidInput` for `name`."""
    check_positive(name, value)
    if value is not None:
        _check_span(name, value)


def _check_number(name: str, value: Any, least: int, most: int) -> None:
    if value is None and name == "priority":
        return
    if type(value) is not int or not least <= value <= most:
        raise InvalidInput(name, f"must be an int from {least} to {most}, not {shown(value)}")


def check_count(name: str, value: object) -> None:
    """A whole number from 1 on, as the database can have it. Raises `InvalidInput` for `name`."""
    _check_number(name, value, 1, MOST)


def check_age(name: str, value: object) -> None:
    """How long ago something was: a timedelta, not negative. Raises `InvalidInput` for `name`."""
    if not isinstance(value, timedelta):
        raise InvalidInput(name, f"must be a timedelta, not {type(value).__name__}")
    if value < timedelta(0):
        raise InvalidInput(name, f"must not be negative, as {seconds(value)} is")
    _check_span(name, value)


def check_limit(limit: object) -> None:
    """How many at most; None: all. Raises `InvalidInput`."""
    if limit is not None:
        _check_number("limit", limit, 1, 2**31 - 1)


def check_page(page: object, skip: object = 0) -> None:
    """How many to read at once, and how many to leave out before. Raises `InvalidInput`."""
    _check_number("page", page, 1, MAX_PAGE)
    _check_number("skip", skip, 0, 2**31 - 1)


def check_before(before: object) -> None:
    """The sequence number before which a page of a log ends; None: the newest page. Raises `InvalidInput`."""
    if before is not None:
        _check_number("before", before, 0, 2**31 - 1)


def check_events(events: object) -> None:
    """The events of a log that are looked for; None: all. Raises `InvalidInput`."""
    if events is None:
        return
    if isinstance(events, str) or not isinstance(events, Sequence) or not events:
        raise InvalidInput("events", f"must be a list of names of events, or None for all, not {shown(events)}")
    for event in events:
        if event not in LOGGED:
            raise InvalidInput("events", none_of(event, LOGGED))


def check_filters(**filters: object) -> None:
    """Texts that are looked for: any that Postgres can have. Raises `InvalidInput`."""
    for name, text in filters.items():
        if text is not None:
            check_text(name, text, limit=MAX_ID_BYTES)


def check_reason(reason: object) -> None:
    """A stop reason that is looked for, or its beginning up to a colon; None: any. Raises `InvalidInput`."""
    check_filters(reason=reason)
    if isinstance(reason, str) and reason.partition(":")[0] not in STOP_REASONS:
        raise InvalidInput("reason", none_of(reason, STOP_REASONS))


def check_generation(generation: object) -> int | None:
    """The generation that a caller has seen; None: any. Raises `InvalidInput`."""
    if generation is None:
        return None
    _check_number("expected_generation", generation, 1, 2**31 - 1)
    return int(str(generation))


def check_digest(seen: object) -> str | None:
    """The digest of what a caller has seen; None: any. Raises `InvalidInput`."""
    return None if seen is None else check_text("seen", seen, limit=MAX_ID_BYTES)


def check_states(states: object) -> list[State] | None:
    """The states that are looked for; None: all. Raises `InvalidInput`."""
    if states is None:
        return None
    if isinstance(states, str) or not isinstance(states, Iterable):
        raise InvalidInput("states", f"must be several states, not {type(states).__name__}")
    return [_state(state) for state in states]


def _state(state: object) -> State:
    if isinstance(state, str) and state in {one.value for one in State}:
        return State(state)
    raise InvalidInput("states", none_of(state, [one.value for one in State]))


def check_actor(actor: object) -> str:
    """Who acts: it stands in the log for ever. Raises `InvalidInput`."""
    return check_name("actor", actor)


def check_why(why: object) -> str | None:
    """The words that a person gives with an operation. Raises `InvalidInput`."""
    return None if why is None else check_text("why", why, limit=MAX_WHY_BYTES)


def check_grace(grace: object) -> timedelta:
    """How long to wait before a process is ended: not negative. Raises `InvalidInput`."""
    if not isinstance(grace, timedelta):
        raise InvalidInput("grace", f"must be a timedelta, not {type(grace).__name__}")
    if not timedelta(0) <= grace <= LONGEST:
        raise InvalidInput("grace", f"must be from 0 to {LONGEST.days} days, not {seconds(grace)}")
    return grace


def legible(text: str, *, limit: int) -> str:
    """What an error said, as Postgres can keep it: `limit` characters of it; NUL and lone surrogates escaped."""
    return text[:limit].replace("\0", "\\x00").encode("utf-8", "backslashreplace").decode("utf-8")


def is_name(text: object) -> bool:
    """Whether a job or an owner can be called so. One that cannot be is not looked up: it is not there."""
    try:
        check_name("id", text)
    except InvalidInput:
        return False
    return True

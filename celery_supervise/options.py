"""What a task and a call may say of their job: `supervise=Options(…)` and `supervise={…}`. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from datetime import datetime, timedelta
from typing import Any, Literal

from .errors import InvalidInput
from .intake import check_count, check_duration, check_when
from .model import STALL_ACTIONS, When
from .remembered import Migration
from .values import check_name
from .wording import nearest, none_of, shown


@dataclass(frozen=True)
class Options:
    """What a task says of all its jobs.

    `deadline`: how long a job may take from submit to end, waiting included. `max_active`: how long it may run,
    waiting for people not counted. `retry_for`: for how long after its first error a job may be tried again, waiting
    for people and workers not counted; with it and `max_retries`, whatever ends first. `lost_attempts`: how many
    attempts may die under it. `version`: of the code; `compatible_with`: older versions whose jobs this code can go on
    with as they are; `migrate`: by an older version, a function that makes of what its jobs remember what this code
    expects (see `Remembered`). `stall_after`: how long it may run without a checkpoint or a word of progress;
    `on_stall`: what then, once logged. None: the app's setting. `expose`: whether it can be submitted over HTTP.
    """

    version: int = 1
    compatible_with: tuple[int, ...] = ()
    deadline: timedelta | None = None
    max_active: timedelta | None = None
    lost_attempts: int | None = None
    stall_after: timedelta | None = None
    on_stall: Literal["log", "cancel", "fail"] = "log"
    retry_for: timedelta | None = None
    migrate: Mapping[int, Migration] | None = None
    expose: bool = False

    def __post_init__(self) -> None:
        """Refuse what cannot work where it is written."""
        for name in ("deadline", "max_active", "stall_after", "retry_for"):
            check_duration(name, getattr(self, name))
        if self.lost_attempts is not None:
            check_count("lost_attempts", self.lost_attempts)
        if self.on_stall not in list(STALL_ACTIONS):  # also where it cannot be looked up
            raise InvalidInput("on_stall", none_of(self.on_stall, STALL_ACTIONS))
        check_count("version", self.version)
        if not isinstance(self.compatible_with, (tuple, list, set, frozenset)):
            raise InvalidInput("compatible_with", f"must be a tuple of versions, not {shown(self.compatible_with)}")
        for version in self.compatible_with:
            check_count("compatible_with", version)
        self._check_migrations()

    def _check_migrations(self) -> None:
        if not isinstance(self.migrations, Mapping):
            raise InvalidInput("migrate", "must be a dict: by an older version, the function for its jobs")
        for version, function in self.migrations.items():
            check_count("migrate", version)
            if version in self.runs:
                raise InvalidInput(
                    "migrate", f"needs versions that this code does not run as they are, not {shown(version)}"
                )
            if not callable(function):
                raise InvalidInput("migrate", f"{version}: must be a function, not {shown(function)}")

    @property
    def runs(self) -> tuple[int, ...]:
        """The versions of jobs that this code can run as they are."""
        return (self.version, *self.compatible_with)

    @property
    def versions(self) -> tuple[int, ...]:
        """The versions of jobs that this code can go on with, some once they are migrated."""
        return (*self.runs, *self.migrations)

    @property
    def migrations(self) -> Mapping[int, Migration]:
        """What makes this version's memory of an older one's, by the older one."""
        return {} if self.migrate is None else self.migrate


@dataclass(frozen=True)
class CallOptions:
    """What one call says of its job: `apply_async(…, supervise=dict(owner="acme", idempotency_key="…"))`.

    `session`: a SQLAlchemy Session or Connection, `using`: the alias of a Django database, in whose open transaction
    the job is accepted.
    """

    owner: str | None = None
    idempotency_key: str | None = None
    input_version: str | None = None
    deadline: When | None = None
    max_active: timedelta | None = None
    session: Any = None
    using: str | None = None


_CALL = tuple(field.name for field in fields(CallOptions))


def call_options(given: Mapping[str, Any] | None) -> CallOptions:
    """The options of one call. Raises `InvalidInput` for a name that is none, and for values that cannot be.

    >>> call_options({"owner": "acme"}).owner
    'acme'
    """
    if not isinstance(given, Mapping | None):
        raise InvalidInput("supervise", f"must be a dict of options, not {shown(given)}")
    for name in given or {}:
        if name not in _CALL:
            raise InvalidInput(f"supervise[{shown(name)}]", f"there is no such option{nearest(name, _CALL)}")
    options = CallOptions(**(given or {}))
    for name in ("owner", "idempotency_key", "input_version", "using"):
        if (value := getattr(options, name)) is not None:
            check_name(name, value)
    _time("deadline", options.deadline)
    check_duration("max_active", options.max_active)
    return options


def _time(name: str, value: Any) -> None:
    if isinstance(value, datetime):
        check_when(name, value)
    else:
        check_duration(name, value)

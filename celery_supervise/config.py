"""The settings, `supervise_*`: their types, defaults and limits. Pure: reads a mapping, opens nothing."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from datetime import timedelta
from typing import Any

from .errors import ConfigError, InvalidInput
from .intake import LONGEST, MOST
from .values import check_name
from .wording import nearest, shown

PREFIX = "supervise_"
BEATS_PER_LEASE = 3
"""A lease must outlive two lost heartbeats."""
LOCKS_PER_LEASE = 6
"""A wait for a row must be over well before the lease is (protocol 7)."""


@dataclass(frozen=True)
class Settings:
    """All settings. Seconds may be fractions; `None` means "not set"."""

    database_url: str | None = None
    database: str | None = None
    schema: str = "supervise"
    namespace: str = "default"
    queue: str | None = None
    submit: str = "row"
    owner: str | None = None
    groups: str | None = None
    authenticate: str | None = None
    notify: str | None = None
    session: str | None = None
    codec: str | None = None
    get_parked: str = "wait"
    lease_seconds: float = 60.0
    heartbeat_seconds: float = 10.0
    sweep_seconds: float = 10.0
    relay_seconds: float = 1.0
    lock_timeout_seconds: float | None = None
    republish_seconds: float = 30.0
    question_ttl_seconds: float = 7 * 86400.0
    deadline_seconds: float | None = None
    release_window: int = 1000
    owner_running: int | str | None = None
    owner_open: int | str | None = None
    lost_attempts: int = 3
    stall_seconds: float = 1800.0
    version_grace_seconds: float = 3600.0
    max_value_bytes: int = 1 << 20
    max_job_bytes: int = 16 << 20
    retention_seconds: float | None = None
    worker_thread: bool = True
    beat: bool = True

    @property
    def lease(self) -> timedelta:
        """How long an attempt runs on without a renewal."""
        return timedelta(seconds=self.lease_seconds)

    @property
    def lock_timeout(self) -> timedelta:
        """The longest wait for a row that another session holds."""
        seconds = self.lock_timeout_seconds
        if seconds is None:
            # whole milliseconds, as Postgres counts: rounded up it would be above a sixth
            seconds = math.floor(min(5.0, self.lease_seconds / LOCKS_PER_LEASE) * 1000) / 1000
        return timedelta(seconds=seconds)

    @property
    def retention(self) -> timedelta | None:
        """How long an ended job is kept; None: until somebody removes it."""
        return None if self.retention_seconds is None else timedelta(seconds=self.retention_seconds)

    @property
    def question_ttl(self) -> timedelta:
        """How long a question stays open where it does not say."""
        return timedelta(seconds=self.question_ttl_seconds)


_CHOICES: Mapping[str, frozenset[str]] = {
    "submit": frozenset({"row", "worker"}),
    "get_parked": frozenset({"wait", "raise"}),
}
_TEXT = frozenset(
    {
        *("database_url", "database", "schema", "namespace", "queue", "owner", "groups", "authenticate"),
        *("notify", "session", "codec"),
    }
)
_BYTES: Mapping[str, int] = {"namespace": 255, "queue": 255, "notify": 255, "schema": 63}
"""Postgres cuts an identifier at 63 bytes, silently."""
_NAMES = tuple(field.name for field in fields(Settings))
_WHOLE = frozenset(field.name for field in fields(Settings) if str(field.type).startswith("int"))
_LIMITS = frozenset({"owner_running", "owner_open"})
"""A number, or the path of a function that gives one for an owner."""

_POSITIVE = frozenset(name for name in _NAMES if name.endswith(("_seconds", "_bytes", "_attempts", "_window")))


def load(get: Callable[[str], Any], given: Iterable[str]) -> Settings:
    """The settings of an app.

    `get` reads one setting by its full name (None: not set); `given` names all settings that the shop made, so
    that a misspelt one is refused. Raises `ConfigError`.
    """
    for name in given:
        _known(name)
    values = {name: value for name in _NAMES if (value := get(PREFIX + name)) is not None}
    for name, value in values.items():
        _check(name, value)
    settings = Settings(**values)
    _consistent(settings)
    return settings


def _known(name: str) -> None:
    lower = name.lower()
    if not lower.startswith(PREFIX) or lower.removeprefix(PREFIX) in _NAMES:
        return
    near = nearest(lower, [PREFIX + known for known in _NAMES], quote="")
    raise ConfigError(name, f"there is no such setting{near}")


def _check(name: str, value: Any) -> None:
    setting = PREFIX + name
    if name in _TEXT and not (isinstance(value, str) and value.strip()):
        raise ConfigError(setting, f"must be a text that is not empty, not {shown(value)}")
    if name in _BYTES:
        _named(setting, value, _BYTES[name])
    if name in _CHOICES and not (isinstance(value, str) and value in _CHOICES[name]):
        raise ConfigError(setting, f"must be one of {', '.join(sorted(_CHOICES[name]))}, not {shown(value)}")
    if name in _POSITIVE:
        _positive(setting, value, whole=name in _WHOLE)
    if name in _LIMITS:
        _limit(setting, value)
    if name in ("worker_thread", "beat") and not isinstance(value, bool):
        raise ConfigError(setting, f"must be True or False, not {shown(value)}")


def _named(setting: str, value: str, limit: int) -> None:
    try:
        check_name(setting, value)
    except InvalidInput as error:
        raise ConfigError(setting, error.problem) from None
    if len(value.encode()) > limit:
        raise ConfigError(setting, f"must be at most {limit} bytes long, not {len(value.encode())}")


def _limit(setting: str, value: Any) -> None:
    if isinstance(value, str) and value.strip():
        return
    if isinstance(value, bool) or not isinstance(value, int):
        raise ConfigError(setting, f"must be a whole number or the path of a function, not {shown(value)}")
    _positive(setting, value, whole=True)


def _positive(setting: str, value: Any, *, whole: bool) -> None:
    if isinstance(value, bool) or not isinstance(value, int if whole else (int, float)):
        raise ConfigError(setting, f"must be a {'whole ' if whole else ''}number, not {shown(value)}")
    if not 0 < value < float("inf"):
        raise ConfigError(setting, f"must be greater than 0, not {shown(value)}")
    most = LONGEST.total_seconds() if setting.endswith("_seconds") else MOST
    if value > most and not setting.endswith("_bytes"):  # those are compared in Python alone
        raise ConfigError(setting, f"must be at most {most:.0f}, not {shown(value)}")


def _consistent(settings: Settings) -> None:
    if settings.database is not None and settings.database_url is not None:
        raise ConfigError("supervise_database", "and supervise_database_url are both set; keep one of them")
    if timedelta(seconds=settings.heartbeat_seconds) * BEATS_PER_LEASE > settings.lease:
        raise ConfigError(
            "supervise_heartbeat_seconds",
            f"{settings.heartbeat_seconds:g} is not well below supervise_lease_seconds ({settings.lease_seconds:g}):"
            f" at most a third of it, so that two lost heartbeats lose no lease",
        )
    if settings.lock_timeout < timedelta(milliseconds=1):
        raise ConfigError("supervise_lock_timeout_seconds", "must be at least 0.001: Postgres takes 0 for no limit")
    if settings.lock_timeout * LOCKS_PER_LEASE > settings.lease:
        raise ConfigError(
            "supervise_lock_timeout_seconds",
            f"{settings.lock_timeout.total_seconds():g} is above a sixth of supervise_lease_seconds"
            f" ({settings.lease_seconds:g}): a lease could end while a checkpoint waits for its row",
        )

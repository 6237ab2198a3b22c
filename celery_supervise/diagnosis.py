"""What an examination is made of: who is examined, what is found, how it is said. Looks at nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from enum import Enum
from typing import Any, Final

from .brokers import Broker
from .config import Settings
from .model import Publisher
from .store.door import Door, Row
from .store.sql import Statement

NAMED: Final = 5
"""So many jobs are named in a finding."""


class Severity(str, Enum):
    """How bad a finding is: an error needs somebody now."""

    OK = "ok"
    WARNING = "warning"
    ERROR = "error"
    UNCHECKED = "not checked"

    __str__ = str.__str__


@dataclass(frozen=True)
class Finding:
    """What was found, what it means, what helps."""

    severity: Severity
    what: str
    meaning: str = ""
    advice: str = ""


@dataclass(frozen=True)
class Examined:
    """What one check found; `unreachable`: the database was away."""

    check: str
    findings: tuple[Finding, ...]
    unreachable: bool = False


@dataclass(frozen=True)
class Surroundings:
    """What the shop's Celery is set to.

    `queue` is any queue of ours; `transport` is kombu's driver type; after `visibility` the broker delivers a message
    again that is not acknowledged.
    """

    queue: str
    transport: str
    visibility: timedelta
    prefetch: int


@dataclass(frozen=True)
class Patient:
    """What is examined."""

    settings: Settings
    door: Door
    publisher: Publisher
    around: Surroundings
    broker: Broker


Look = Callable[[Patient], Iterator[Finding]]


def ok(what: str) -> Finding:
    """Nothing ails here."""
    return Finding(Severity.OK, what)


def warning(what: str, meaning: str, advice: str) -> Finding:
    """Something that may become, or hide, a fault."""
    return Finding(Severity.WARNING, what, meaning, advice)


def error(what: str, meaning: str, advice: str) -> Finding:
    """A fault."""
    return Finding(Severity.ERROR, what, meaning, advice)


def one(patient: Patient, statement: Statement, **params: Any) -> Row:
    """The row of a statement that counts, and so always has one."""
    return patient.door.all(statement, **params)[0]


def jobs(ids: Sequence[str], total: int) -> str:
    """How many jobs, and the first of them."""
    named = ", ".join(ids[:NAMED]) + (", …" if total > NAMED else "")
    return f"{total} job{'' if total == 1 else 's'} ({named})"

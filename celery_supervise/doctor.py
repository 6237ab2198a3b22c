"""Examines an installation: runs every check, and says what it could not look at. Changes nothing.

The rules among the checks are those that the tests check after every database test.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from sqlalchemy.exc import DBAPIError

from . import ailments
from .diagnosis import Examined, Finding, Look, Patient, Severity, Surroundings, error
from .engine import said
from .errors import ConfigError, DatabaseUnavailable, NotMigrated, SuperviseError

__all__ = ["CHECKS", "Examined", "Finding", "Patient", "Severity", "Surroundings", "examine", "unconfigured"]


GRANT: Final = "Give the app's role its rights: celery -A proj supervise migrate --url OWNER_URL --runtime-role ROLE"


@dataclass(frozen=True)
class Check:
    """A check, and those that must have found no error for it to make sense."""

    name: str
    look: Look
    needs: frozenset[str] = frozenset()


_SERVER: Final = frozenset({"database"})
_TABLES: Final = frozenset({"database", "schema"})

CHECKS: Final = (
    Check("settings", ailments.settings),
    Check("database", ailments.database),
    Check("schema", ailments.schema, _SERVER),
    Check("role", ailments.role, _TABLES),
    Check("rules", ailments.rules, _TABLES),
    Check("sweeps", ailments.sweeps, _TABLES),
    Check("jobs", ailments.waiting, _TABLES),
    Check("holds", ailments.held, _TABLES),
    Check("retention", ailments.retention, _TABLES),
    Check("broker", ailments.broker),
    Check("namespace", ailments.namespace, _TABLES),
    Check("celery", ailments.celery, _TABLES),
)


def examine(patient: Patient) -> list[Examined]:
    """Every check. Raises nothing: what cannot be reached is a finding."""
    done: list[Examined] = []
    failed: set[str] = set()
    for check in CHECKS:
        missing = sorted(check.needs & failed)
        examined = _unchecked(check, missing) if missing else _examined(check, patient)
        if any(finding.severity is Severity.ERROR for finding in examined.findings):
            failed.add(check.name)
        done.append(examined)
    return done


def unconfigured(problem: ConfigError) -> Examined:
    """What is said where the settings do not even allow to look."""
    advice = f"Correct {problem.setting} in the app's configuration."
    return Examined("settings", (error(str(problem), "No job can be submitted, run or seen.", advice),))


def _unchecked(check: Check, missing: Sequence[str]) -> Examined:
    return Examined(check.name, (Finding(Severity.UNCHECKED, f"needs: {', '.join(missing)}"),))


def _examined(check: Check, patient: Patient) -> Examined:
    try:
        return Examined(check.name, tuple(check.look(patient)))
    except (SuperviseError, DBAPIError) as problem:
        return Examined(check.name, (_failure(problem),), isinstance(problem, DatabaseUnavailable))


def _failure(problem: SuperviseError | DBAPIError) -> Finding:
    match problem:
        case DatabaseUnavailable():
            meaning = "No job can be submitted or claimed; running ones go on until they save, and then wait."
            return error(problem.detail, meaning, problem.advice)
        case NotMigrated():
            return error(problem.problem, "The tables cannot be used.", problem.advice)
        case DBAPIError():
            return error(said(problem), "Postgres refused to look.", GRANT)
    return error(str(problem), "This could not be checked just now.", "Run doctor again.")

"""Every error of the library. Errors carry attributes; their text says what to do. No I/O, no imports of ours.

Two families. ``SuperviseError`` is an ordinary ``Exception``: a call was wrong or was refused, and nothing
was written. ``ControlFlow`` is a ``BaseException``: it ends an attempt, it is raised only inside a
supervised body, and no ``except Exception`` or ``autoretry_for`` of the body can swallow it. What keeps a call
from being accepted just now is kombu's ``OperationalError``, too: what callers of Celery expect where it cannot send.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Any

from kombu.exceptions import OperationalError

from .wording import count, cut, shown


class SuperviseError(Exception):
    """Base of every error that a caller may handle. Pickles with its attributes, without its constructor."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuilt, (type(self), self.args), self.__dict__


def _rebuilt(class_: type[SuperviseError], args: tuple[Any, ...]) -> SuperviseError:
    error = class_.__new__(class_, *args)
    error.args = args  # an OSError takes them in its constructor only
    return error


# --- set-up ----------------------------------------------------------------------------------------------


class ConfigError(SuperviseError):
    """A setting is missing, unknown or cannot work. Raised at start-up or at the first use."""

    def __init__(self, setting: str, problem: str) -> None:
        super().__init__(f"{cut(setting)}: {problem}")
        self.setting = setting
        self.problem = problem


_OUTAGES: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "unreachable": (
            "Postgres cannot be reached",
            "See that it runs where supervise_database_url says, and try again.",
        ),
        "no_database": (
            "Postgres has no such database",
            "Make it (CREATE DATABASE), or correct its name in the URL (supervise_database_url).",
        ),
        "login_refused": (
            "Postgres refused the login",
            "Correct user and password in the URL (supervise_database_url), or let them in by pg_hba.conf.",
        ),
        "refusing": ("Postgres answers, but takes no work just now", "Try again."),
    }
)


class DatabaseUnavailable(SuperviseError, OperationalError):
    """Postgres did not answer, or would not let us in; ``unknown``: a commit may have happened all the same.

    ``code`` is one of a closed list: ``unreachable``, ``no_database``, ``login_refused``, ``refusing`` (full, starting,
    read-only). ``advice``: what helps.
    """

    def __init__(self, detail: str, *, unknown: bool = False, code: str = "unreachable") -> None:
        problem, advice = _OUTAGES[code]
        state = "the outcome of the last statement is unknown" if unknown else "nothing was written"
        super().__init__(f"{problem} ({detail}); {state}. {advice}")
        self.detail = detail
        self.unknown = unknown
        self.code = code
        self.advice = advice


class NotMigrated(SuperviseError, OperationalError):
    """The schema is absent or too old or too new for this library."""

    def __init__(self, schema: str, problem: str, *, advice: str = "run: celery -A proj supervise migrate") -> None:
        super().__init__(f"schema {shown(schema)}: {problem}; {advice}")
        self.schema = schema
        self.problem = problem
        self.advice = advice


class MigrationBlocked(SuperviseError):
    """Another session held what the migration needs, for too long. Nothing was changed."""

    def __init__(self, schema: str, *, waited: timedelta, detail: str) -> None:
        super().__init__(
            f"schema {shown(schema)}: gave up after waiting {waited.total_seconds():g} s for a lock ({detail}); "
            "nothing was changed. Let the other migration, dump or long transaction end, then migrate again"
        )
        self.schema = schema
        self.waited = waited
        self.detail = detail


# --- bad input -------------------------------------------------------------------------------------------


class InvalidInput(SuperviseError, ValueError):
    """A value given to the library cannot be used; ``field`` names it."""

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(f"{cut(field)}: {problem}")
        self.field = field
        self.problem = problem


class TooLarge(InvalidInput):
    """A value is over its limit (bytes). Store it elsewhere and keep its key."""

    def __init__(self, field: str, *, size: int, limit: int) -> None:
        super().__init__(field, f"{size} bytes, the limit is {limit}; store it elsewhere and keep its key")
        self.size = size
        self.limit = limit


class NotSerialisable(SuperviseError, TypeError):
    """A value does not come back from the store as it went in; ``path`` says where (``$.rows[3].total``)."""

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(f"{cut(path)}: {problem}")
        self.path = path
        self.problem = problem


class Unreadable(SuperviseError):
    """A stored value can no longer be decoded (its class moved, its key is gone; its bytes are kept), or was erased."""

    def __init__(self, what: str, problem: str) -> None:
        super().__init__(f"{what} cannot be read back: {problem}")
        self.what = what
        self.problem = problem


# --- wrong use inside a body: each ends the attempt, the job fails ---------------------------------------


class BodyError(SuperviseError):
    """The body used the library wrongly. The attempt is over, whether or not the body swallows this."""


class DuplicateName(BodyError):
    """A step, checkpoint, loop or question name was used twice in one attempt."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"the name {shown(name)} is used twice in one run; put the item's key in the name, or use each()"
        )
        self.name = name


class OutsideAttempt(BodyError):
    """A supervised call was made where no attempt is running, or in a thread that is not the body's."""

    def __init__(self, call: str, problem: str) -> None:
        super().__init__(f"{call}(): {problem}")
        self.call = call
        self.problem = problem


class AskedAsFunction(BodyError):
    """``ask`` in a worker, where the body runs as a function: there is no job that could be parked.

    One positional argument, so that a result backend can rebuild it. ``key`` is the question's.
    """

    def __init__(self, key: str) -> None:
        super().__init__(key)
        self.key = key

    def __str__(self) -> str:
        return (
            f"ask({shown(self.key)}): this body runs as a function, which cannot wait for an answer: in map, starmap "
            "or chunks, in an errback that Celery calls itself, or called by another task. Send it as a task: delay(), "
            "apply_async(), a group; give an errback one argument"
        )


class InsideTransaction(BodyError):
    """A supervised call was made inside an open transaction of the body's own."""

    def __init__(self, call: str) -> None:
        super().__init__(
            f"{call}() inside an open transaction would commit apart from it; "
            "use `with self.transaction(session): self.step(…)`, or leave the transaction first"
        )
        self.call = call


class CursorLost(BodyError):
    """The item at which a durable loop stopped is no longer among its items."""

    def __init__(self, name: str, key: str | int) -> None:
        super().__init__(
            f"each({shown(name)}) stopped after {shown(key)}, which is not among the items now; "
            "iterate over a remembered list (self.step), not over a fresh query"
        )
        self.name = name
        self.key = key


class DuplicateKey(BodyError):
    """Two items of one durable loop have the same key, so that its cursor would not say where it stopped."""

    def __init__(self, name: str, key: str | int) -> None:
        super().__init__(f"each({shown(name)}) has two items with the key {shown(key)}; keys must differ within a loop")
        self.name = name
        self.key = key


class SecondSave(BodyError):
    """A transaction block was given a second step or checkpoint: it commits exactly one, at its end."""

    def __init__(self, name: str) -> None:
        super().__init__(f"{shown(name)} is the second one in a transaction block; open a block for each")
        self.name = name


class StepTimedOut(SuperviseError, TimeoutError):
    """``options(timeout=)`` was over: nothing is remembered. The attempt lives; Celery may retry it.

    One positional argument, so that a result backend can rebuild it. ``name`` and ``timeout`` are the step's.
    """

    def __init__(self, text: str, *, name: str | None = None, timeout: timedelta | None = None) -> None:
        super().__init__(text)
        self.name = name
        self.timeout = timeout

    @classmethod
    def of(cls, name: str, timeout: timedelta) -> StepTimedOut:
        """The error of a step."""
        return cls(f"step {shown(name)} took longer than {timeout.total_seconds():g} s", name=name, timeout=timeout)


class VerificationFailed(BodyError):
    """``options(verify=)`` refused a remembered output."""

    def __init__(self, name: str) -> None:
        super().__init__(f"the remembered output of step {shown(name)} no longer verifies")
        self.name = name


# --- refusals of the service -----------------------------------------------------------------------------


class JobNotFound(SuperviseError, LookupError):
    """No such job, or not yours: the two are never told apart."""

    def __init__(self, job_id: str) -> None:
        super().__init__(f"there is no job {shown(str(job_id))}")
        self.job_id = job_id


class QuestionNotFound(SuperviseError, LookupError):
    """No such question, or not yours: the two are never told apart. `instead`: what the id is of."""

    def __init__(self, question_id: str, instead: str | None = None) -> None:
        super().__init__(f"there is no question {shown(str(question_id))}" + (f": {instead}" if instead else ""))
        self.question_id = question_id


class JobExists(SuperviseError):
    """The id, or the idempotency key, is taken by the job ``job_id``, which has other input."""

    def __init__(self, job_id: str, *, idempotency_key: str | None = None) -> None:
        taken, other = f"job {shown(job_id)} exists", "id"
        if idempotency_key is not None:
            taken, other = f"idempotency key {shown(idempotency_key)} is that of job {shown(job_id)}", "key"
        super().__init__(f"{taken}, with another task, input or owner; choose another {other}")
        self.job_id = job_id
        self.idempotency_key = idempotency_key


class Conflict(SuperviseError):
    """The job is not in a state in which this can be done. ``code`` is one of a closed list.

    Codes: ``stale_generation``, ``already_final``, ``already_answered``, ``question_closed``,
    ``question_open``, ``question_changed``, ``expired``, ``not_parked``, ``already_resumed``, ``busy``,
    ``not_completed`` (it has no result), ``not_final`` (it has not ended), ``already_rerun``, ``erased`` (its
    arguments are gone), ``not_ended``, ``not_told`` (of `erase`), ``nothing_to_send`` (of `kick`).
    """

    def __init__(
        self,
        code: str,
        *,
        state: str | None,
        detail: str,
        expected: int | None = None,
        actual: int | None = None,
    ) -> None:
        super().__init__(detail)
        self.code = code
        self.state = state
        self.expected = expected
        self.actual = actual


class Busy(Conflict, OperationalError):
    """Another operation holds what this one needs, for longer than it may wait; try again. ``code`` is ``busy``."""

    def __init__(self, detail: str, *, state: str | None = None) -> None:
        super().__init__("busy", state=state, detail=f"{detail}; try again")


class AlreadyRerun(Conflict):
    """The job was run again before: as the job ``successor``."""

    def __init__(self, successor: str, *, state: str) -> None:
        super().__init__("already_rerun", state=state, detail=f"the job was already run again, as {shown(successor)}")
        self.successor = successor


class QuestionClosed(Conflict):
    """The question takes no answer any more."""

    def __init__(
        self,
        code: str,
        *,
        job_state: str,
        detail: str,
        answered_by: str | None = None,
        answered_at: datetime | None = None,
        actual: int | None = None,
    ) -> None:
        super().__init__(code, state=job_state, detail=detail, actual=actual)
        self.job_state = job_state
        self.answered_by = answered_by
        self.answered_at = answered_at


class QuestionChanged(Conflict, BodyError):
    """A question is not the one that somebody goes by: ``stored`` is the digest of what was asked, ``now`` theirs.

    In a body: what was asked under this key is asked again with other content. At an answer: `seen` is of something
    else. It is still open then. ``code`` is ``question_changed``.
    """

    def __init__(self, key: str, *, stored: str, now: str, state: str | None = None, actual: int | None = None) -> None:
        detail = (
            f"question {shown(key)} is not the one that was shown (digest {now[:12]}, not {stored[:12]}); look again"
        )
        if state is None:
            detail = (
                f"question {shown(key)} was asked with other content (digest {stored[:12]}, now {now[:12]}); "
                'say on_change="reask" or on_change="keep", or put what changes in the key'
            )
        super().__init__("question_changed", state=state, detail=detail, actual=actual)
        self.key = key
        self.stored = stored
        self.now = now


class InvalidAnswer(SuperviseError, ValueError):
    """The answer does not fit the question's schema; ``errors`` maps a path to what is wrong there."""

    def __init__(self, errors: Mapping[str, Sequence[str]]) -> None:
        text = "; ".join(f"{cut(path)}: {', '.join(why)}" for path, why in errors.items())
        super().__init__(f"the answer was not accepted: {text}")
        self.errors = errors


class NotAllowed(SuperviseError):
    """This actor may see the job but may not do this. ``code`` is one of a closed list.

    Codes: ``self_approval`` (it is their own job), ``not_assigned`` (the question is for others),
    ``self_assignment`` (they may not answer, so they cannot take the question for themselves).
    """

    def __init__(self, code: str, detail: str) -> None:
        super().__init__(detail)
        self.code = code


class QuotaExceeded(SuperviseError, OperationalError):
    """The owner has as many open jobs as it may."""

    def __init__(self, owner: str, *, limit: int) -> None:
        super().__init__(
            f"owner {shown(owner)} has {count(limit, 'open job')}, which is the limit; try again when one ends"
        )
        self.owner = owner
        self.limit = limit


class PublishFailed(SuperviseError):
    """The broker did not take a message. Never shown to a caller of submit: the row is safe, it is sent later."""

    def __init__(self, detail: str) -> None:
        super().__init__(f"the broker did not take the message: {detail}")
        self.detail = detail


# --- how a job ended, as its caller sees it in Celery ----------------------------------------------------


class JobEnded(SuperviseError):
    """Base of what ``AsyncResult.get()`` raises for a job that did not complete by its own body.

    One positional argument, so that a result backend can rebuild it from its type and ``args``.
    """


class JobExpired(JobEnded):
    """The job's time, or its question's, was over; the text is its stop reason."""


class JobLost(JobEnded):
    """The job was given up: its workers died too often."""


class JobFailed(JobEnded):
    """The job failed, and its own exception could not be rebuilt; the text tells it."""


# --- control flow ----------------------------------------------------------------------------------------


class ControlFlow(BaseException):
    """Ends a body. Not an error: the job goes on, or has already ended, without this attempt."""


class QuestionAsked(ControlFlow):
    """The question is stored and the job is parked: this attempt is over."""

    def __init__(self, question_id: str) -> None:
        super().__init__(question_id)
        self.question_id = question_id


class AttemptEnded(ControlFlow):
    """The job has left this attempt: ``state`` is where it is now, None where that is unknown."""

    def __init__(self, state: str | None, why: str) -> None:
        super().__init__(f"this attempt is over ({why}); the job is {state or 'unknown'}")
        self.state = state
        self.why = why


class LeaseLost(AttemptEnded):
    """Another attempt may own the job now, or none: nothing this one writes is kept."""


class NeedsAnswer(ControlFlow):
    """``ask`` in eager mode, with no test answer for its key. Never raised in a worker."""

    def __init__(self, key: str, *, given: Sequence[str] | None = None) -> None:
        by = "answers=" if given is not None else "celery_supervise.testing.answers(…)"
        there = f"; there are answers for {', '.join(map(shown, given))}" if given else ""
        super().__init__(f"ask({shown(key)}) needs an answer: give one for {shown(key)} with {by}{there}")
        self.key = key

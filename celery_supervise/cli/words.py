"""What a job's row means, in words for a person. Pure; escapes nothing, since its callers do."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Final

from celery_supervise.lifecycle import TERMINAL, USER_PAUSED, State
from celery_supervise.model import Attempt, Cleanup, Job, Moved

from .render import instant, near

_REASONS: Final[Mapping[str, Callable[[str], str]]] = {
    "awaiting_user_answer": lambda key: f"waits for an answer to {key}",
    "answered": lambda key: f"{key} is answered",
    "resume_requested": lambda prior: f"told to go on ({reason(prior)})" if prior else "told to go on",
    "expired": lambda prior: f"its time was over ({reason(prior)})",
    "incompatible_version": lambda versions: f"no worker can run its version ({versions})",
    "retries_exhausted": lambda what: f"not tried again ({reason(what)})",
    "unknown_task": lambda name: f"no worker knows the task {name}",
}
_PLAIN: Final[Mapping[str, str]] = {
    USER_PAUSED: "paused",
    "deadline": "its deadline",
    "start_by": "it had not started",
    "max_active": "its running time was used up",
    "attempts": "its tries were used up, lost ones among them",
    "retry_for": "the time for retries was used up",
}
_OUTCOMES: Final[Mapping[str, str]] = {
    "lost": "worker lost",
    "handed_over": "handed over, since its worker was stopping",
    "retried": "failed, to be tried again",
}
_EVENTS: Final[Mapping[str, str]] = {
    "lease_lost": "worker lost",
    "settled": "told to Celery",
}
UNTIL_RESUMED: Final = "it will not start until resumed"


def reason(stop_reason: str | None) -> str:
    """Why a job stands still or ended.

    >>> reason("expired:awaiting_user_answer:approve")
    'its time was over (waits for an answer to approve)'
    """
    if stop_reason is None:
        return ""
    name, colon, rest = stop_reason.partition(":")
    if colon and name in _REASONS:
        return _REASONS[name](rest)
    return _PLAIN.get(stop_reason, stop_reason)


def event(name: str) -> str:
    """What a line of the log says happened."""
    return _EVENTS.get(name, name.replace("_", " "))


def outcome(attempt: Attempt) -> str:
    """How an attempt ended."""
    ended = attempt.outcome or "running"
    cause = f": {attempt.cause}" if attempt.cause else ""
    return _OUTCOMES.get(ended, ended) + cause


def fate(cleanup: Cleanup) -> str:
    """What becomes of a cleanup."""
    if cleanup.sent_at is not None:
        return f"sent at {instant(cleanup.sent_at)}"
    return "not needed" if cleanup.dropped_at is not None else "sent if the job does not complete"


def why(job: Job, now: datetime) -> str:
    """Why the job is where it is, and what moves it."""
    if job.state in TERMINAL:
        return reason(job.stop_reason)
    parts = [_waits(job, now), *_requests(job)]
    return "; ".join(part for part in parts if part)


def _waits(job: Job, now: datetime) -> str:
    if job.state is State.RUNNING:
        return ""
    if job.state is State.PENDING:
        return _start(job, now)
    if job.stop_reason is None:
        return "for no reason, which must not be: run doctor"
    waiting = ", waits for a worker" if job.ticket_id is not None else ""
    return reason(job.stop_reason) + waiting


def _start(job: Job, now: datetime) -> str:
    again = " again" if job.attempts else ""
    if job.starts_at is not None and job.starts_at > now:
        return f"starts{again} at {near(job.starts_at, now)}"
    return f"waits for a worker to start it{again}"


def _requests(job: Job) -> list[str]:
    if job.cancel_requested_at is not None:
        killed = f", or is ended at {instant(job.terminate_after)}" if job.terminate_after else ""
        return [f"cancelling: its worker stops at its next step{killed}"]
    if job.pause_requested_at is None:
        return []
    return ["pausing after the current step" if job.state is State.RUNNING else UNTIL_RESUMED]


# --- what a request did ----------------------------------------------------------------------------------


def paused(moved: Moved) -> str:
    """What came of a pause."""
    if moved.state is State.RUNNING:
        return "pausing after the current step" if moved.changed else "already pausing after the current step"
    if not moved.pause_requested:
        return "already paused"
    return UNTIL_RESUMED if moved.changed else f"already asked for: {UNTIL_RESUMED}"


def resumed(moved: Moved) -> str:
    """What came of a resume."""
    if moved.state is State.PARKED and (moved.stop_reason or "").startswith("resume_requested:"):
        return "goes on as soon as a worker takes it"
    return "the pause is taken back"


def cancelled(moved: Moved, *, terminate: bool = False) -> str:
    """What came of a cancel."""
    if moved.state is State.CANCELLED:
        return "cancelled"
    again = "" if moved.changed else "already "
    or_else = ", or its process is ended" if terminate else ""
    return f"{again}cancelling: its worker stops at its next step{or_else}, and no other end is possible"


def answered(moved: Moved) -> str:
    """What came of an answer."""
    if not moved.changed:
        return "this very answer of yours was already accepted"
    return UNTIL_RESUMED if moved.pause_requested else "the job goes on as soon as a worker takes it"


def over(moment: datetime | None) -> str:
    """When something ended."""
    return "until now" if moment is None else f"until {instant(moment)}"

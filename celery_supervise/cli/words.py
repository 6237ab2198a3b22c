"""What a job's row means, in words for a person. Pure; escapes nothing, since its callers do."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Final

from celery_supervise.lifecycle import TERMINAL, USER_PAUSED, State
from celery_supervise.model import Attempt, Job, Moved, Question

from .render import instant, near

_REASONS: Final[Mapping[str, Callable[[str], str]]] = {
    "awaiting_user_answer": lambda key: f"waits for an answer to {key}",
    "answered": lambda key: f"{key} is answered",
    "withdrawn": lambda key: f"{key} is taken back, to be asked anew",
    "resume_requested": lambda prior: f"told to go on ({reason(prior)})" if prior else "told to go on",
    "expired": lambda prior: f"its time was over ({reason(prior)})",
    "incompatible_version": lambda versions: f"no worker can run its version ({versions})",
    "unknown_task": lambda name: f"no worker knows the task {name}",
}
_PLAIN: Final[Mapping[str, str]] = {
    USER_PAUSED: "paused",
    "deadline": "its deadline",
    "start_by": "it had not started",
    "max_active": "its running time was used up",
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
        return ["cancelling: its worker stops at its next step"]
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


def cancelled(moved: Moved) -> str:
    """What came of a cancel."""
    if moved.state is State.CANCELLED:
        return "cancelled"
    again = "" if moved.changed else "already "
    return f"{again}cancelling: its worker stops at its next step, and no other end is possible"


def may_answer(question: Question) -> str:
    """Who may answer a question."""
    who = ", ".join(question.to) or "anybody"
    barred = question.owner_id if not question.self_approval else None
    return f"{who}, but not {barred}, whose job it is" if barred else who


def voted(moved: Moved, question: Question) -> str:
    """What came of an answer that decides nothing yet."""
    counted = "your vote counts" if moved.changed else "this very vote of yours counts already"
    return f"{counted}; {len(question.voted)} voted, {question.approvals} must agree"


def answered(moved: Moved) -> str:
    """What came of an answer."""
    return UNTIL_RESUMED if moved.pause_requested else "the job goes on as soon as a worker takes it"


def reassigned(moved: Moved, to: Sequence[str]) -> str:
    """What came of giving a question to others."""
    return f"{'now' if moved.changed else 'already'} for {', '.join(to)}"


def withdrawn(moved: Moved) -> str:
    """What came of taking a question back."""
    waits = UNTIL_RESUMED if moved.pause_requested else "it goes on as soon as a worker takes it"
    return f"taken back; the job asks anew: {waits}"


def over(moment: datetime | None) -> str:
    """When something ended."""
    return "until now" if moment is None else f"until {instant(moment)}"

"""What a job's row means, in words for a person. Pure; escapes nothing, since its callers do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final

from celery_supervise.lifecycle import TERMINAL, State
from celery_supervise.model import Attempt, Cleanup, Job, Moved, Question
from celery_supervise.moments import instant, near
from celery_supervise.reasons import reason
from celery_supervise.why import UNTIL_RESUMED

_OUTCOMES: Final[Mapping[str, str]] = {
    "lost": "worker lost",
    "handed_over": "handed over, since its worker was stopping",
    "retried": "failed, to be tried again",
}
_EVENTS: Final[Mapping[str, str]] = {
    "lease_lost": "worker lost",
    "settled": "told to Celery",
}


def event(name: str) -> str:
    """What a line of the log says happened."""
    return _EVENTS.get(name, name.replace("_", " "))


def event_name(words: str) -> str:
    """The event of the log that is told so, or called so.

    >>> event_name("worker lost"), event_name("pause_requested")
    ('lease_lost', 'pause_requested')
    """
    told = {said: name for name, said in _EVENTS.items()}
    return told.get(words, words.replace(" ", "_"))


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
        return "" if job.stalled_at is None else f"makes no progress, as was noted at {near(job.stalled_at, now)}"
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


def may_answer(question: Question) -> str:
    """Who may answer a question."""
    who = ", ".join(question.to) or "anybody"
    barred = question.owner_id if not question.self_approval else None
    return f"{who}, but not {barred}, whose job it is" if barred else who


def voted(moved: Moved, question: Question, *, differ: bool) -> str:
    """What came of an answer that decides nothing yet. `differ`: not all who voted said the same."""
    counted = "your vote counts" if moved.changed else "this very vote of yours counts already"
    differently = " differently" if differ else ""
    return f"{counted}; {len(question.voted)} voted{differently}, {question.approvals} must agree"


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

"""Why an operation on a job was refused, as an error that says it precisely. Reads nothing, writes nothing."""

from __future__ import annotations

from .errors import Conflict, QuestionClosed, SuperviseError
from .lifecycle import TERMINAL, State
from .model import Job, Question


def stale_generation(job: Job, expected: int | None) -> Conflict | None:
    """The client's page is older than the job."""
    if expected is None or job.generation == expected:
        return None
    return Conflict(
        "stale_generation",
        state=job.state,
        expected=expected,
        actual=job.generation,
        detail=f"the job has changed since (generation {job.generation}, not {expected}); look again",
    )


def already_final(job: Job) -> Conflict | None:
    """The job is over: it told so first."""
    if job.state not in TERMINAL:
        return None
    return Conflict(
        "already_final", state=job.state, actual=job.generation, detail=f"the job has already ended: {job.state}"
    )


def busy(job: Job | None) -> Conflict:
    """Somebody else holds the row."""
    state = job.state if job else None
    return Conflict("busy", state=state, detail="another operation holds this job just now; try again")


def cannot_resume(job: Job, expected: int | None) -> SuperviseError:
    """Why `resume` found nothing to do."""
    return stale_generation(job, expected) or already_final(job) or _not_resumable(job)


def _not_resumable(job: Job) -> Conflict:
    if job.state is not State.PARKED:
        code, why = "not_parked", f"the job is {job.state}, not parked"
    elif job.question_id is not None:
        code, why = "question_open", "the job waits for an answer; answer its question instead"
    elif job.ticket_id is not None:
        code, why = "already_resumed", "the job was already told to go on and waits for a worker"
    else:
        return busy(job)
    return Conflict(code, state=job.state, actual=job.generation, detail=why)


def cannot_erase(job: Job) -> Conflict:
    """Why the values of a job stay."""
    if job.state not in TERMINAL:
        code, why = "not_ended", f"the job is {job.state}: only the values of a job that has ended can be erased"
    else:
        code, why = "not_told", "Celery has not been told of the job's end yet, which takes its values; try again"
    return Conflict(code, state=job.state, actual=job.generation, detail=why)


def cannot_answer(question: Question, *, seen: str | None, expected: int | None, late: bool) -> SuperviseError:
    """Why an answer was refused, from the question as it is now."""
    return _not_open(question, late=late) or _not_the_one_shown(question, seen, expected) or busy(None)


def _not_open(question: Question, *, late: bool) -> QuestionClosed | None:
    if question.status in {"answered", "superseded"}:
        return _closed(question, "already_answered", f"already answered by {question.answered_by}")
    if question.status == "expired" or late:
        return _closed(question, "expired", "the time to answer is over")
    if question.job_state in TERMINAL:
        return _closed(question, "already_final", f"the job has already ended: {question.job_state}")
    if question.status != "pending":
        return _closed(question, "question_closed", f"the question was {question.status}")
    return None


def _not_the_one_shown(question: Question, seen: str | None, expected: int | None) -> Conflict | None:
    if expected is not None and question.generation != expected:
        return Conflict(
            "stale_generation",
            state=question.job_state,
            expected=expected,
            actual=question.generation,
            detail="the job has changed since; look again",
        )
    if seen is not None and seen != question.digest:
        return _closed(question, "question_changed", "the question is not the one that was shown; look again")
    return None


def _closed(question: Question, code: str, detail: str) -> QuestionClosed:
    return QuestionClosed(
        code,
        job_state=question.job_state,
        detail=detail,
        answered_by=question.answered_by,
        answered_at=question.answered_at,
        actual=question.generation,
    )

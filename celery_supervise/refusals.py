"""Why an operation on a job was refused, as an error that says it precisely. Reads nothing, writes nothing."""

from __future__ import annotations

from datetime import datetime, timedelta

from .errors import Busy, Conflict, InvalidInput, NotAllowed, QuestionChanged, QuestionClosed, SuperviseError
from .intake import LATEST
from .lifecycle import TERMINAL, State
from .model import Job, Question, When
from .recipients import Answerer


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


def busy(job: Job | None) -> Busy:
    """Somebody else holds the row."""
    return Busy("another operation holds this job just now", state=job.state if job else None)


def self_assignment(who: Answerer) -> NotAllowed:
    """Whoever may not answer cannot take the question for themselves."""
    return NotAllowed(
        "self_assignment", f"{who.actor} may not answer this question: somebody else must give it to them"
    )


def cannot_hand(question: Question, expected: int | None, *, late: bool) -> SuperviseError:
    """Why a question was not given to others, or taken back."""
    return not_open(question, late=late) or stale(question, expected) or busy(None)


def is_busy(error: SuperviseError) -> bool:
    """Whether nothing but another operation stood in the way."""
    return isinstance(error, Busy)


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


def cannot_extend(job: Job, expected: int | None, *, over: bool) -> Conflict | None:
    """Why a job's deadline cannot be moved by anybody; None: it can. `over`: one of its times is."""
    late = Conflict("expired", state=job.state, actual=job.generation, detail="the job's time is over")
    return stale_generation(job, expected) or already_final(job) or (late if over else None)


def cannot_extend_question(question: Question, job: Job, expected: int | None, *, over: bool) -> Conflict | None:
    """Why a question's time cannot be moved by anybody; None: it can."""
    return not_open(question, late=over and question.status == "pending") or cannot_extend(job, expected, over=over)


def unusable_time(
    name: str, present: datetime | None, to: When | None, by: timedelta | None, now: datetime
) -> InvalidInput | None:
    """Why a time cannot be moved there. `by` is added to the present one, a timedelta `to` to now."""
    if by is not None and present is None:
        return InvalidInput("by", f"there is no {name} to add it to; say until when instead")
    given, start = ("by", present or now) if by is not None else (name, now)
    span = to if isinstance(to, timedelta) else by
    try:
        target = to if isinstance(to, datetime) else start + (span or timedelta(0))
    except OverflowError:
        target = None
    if target is None or target > LATEST:
        return InvalidInput(given, f"must end before {LATEST:%Y-%m-%d}; nothing was changed")
    return InvalidInput(given, "is already past; nothing was changed") if target <= now else None


def cannot_answer(
    question: Question, who: Answerer, *, seen: str | None, expected: int | None, late: bool
) -> SuperviseError:
    """Why an answer was refused, from the question as it is now."""
    return (
        not_open(question, late=late)
        or not_allowed(question, who)
        or stale(question, expected)
        or _not_the_one_shown(question, seen)
        or busy(None)
    )


def not_allowed(question: Question, who: Answerer) -> NotAllowed | None:
    """This person may not answer: it is their own job, or the question is for others."""
    if not question.self_approval and question.owner_id in who.selves:
        return NotAllowed("self_approval", f"{who.actor} owns the job, and may not answer its question")
    if question.to and not set(question.to) & set(who.names):
        return NotAllowed("not_assigned", f"the question is for {', '.join(question.to)}, not for {who.actor}")
    return None


def not_open(question: Question, *, late: bool) -> QuestionClosed | None:
    """The question takes no answer any more."""
    if question.status in {"answered", "superseded"}:
        return _closed(question, "already_answered", f"already answered by {question.answered_by}")
    if question.status == "expired" or late:
        return _closed(question, "expired", "the time to answer is over")
    if question.job_state in TERMINAL:
        return _closed(question, "already_final", f"the job has already ended: {question.job_state}")
    if question.status != "pending":
        return _closed(question, "question_closed", f"the question was {question.status}")
    return None


def stale(question: Question, expected: int | None) -> Conflict | None:
    """The client's page is older than the question's job."""
    if expected is None or question.generation == expected:
        return None
    return Conflict(
        "stale_generation",
        state=question.job_state,
        expected=expected,
        actual=question.generation,
        detail="the job has changed since; look again",
    )


def _not_the_one_shown(question: Question, seen: str | None) -> QuestionChanged | None:
    if seen is None or seen == question.digest:
        return None
    return QuestionChanged(
        question.key, stored=question.digest, now=seen, state=question.job_state, actual=question.generation
    )


def _closed(question: Question, code: str, detail: str) -> QuestionClosed:
    return QuestionClosed(
        code,
        job_state=question.job_state,
        detail=detail,
        answered_by=question.answered_by,
        answered_at=question.answered_at,
        actual=question.generation,
    )

"""Why a job does not move, in one sentence, and the command that would move it. Pure: reads nothing, moves nothing.

Escapes nothing, since whoever shows a sentence does.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from .intake import LATEST
from .lifecycle import TERMINAL, USER_PAUSED, State
from .moments import apart, near, span
from .reasons import is_refused, reason
from .standing import COUNTED, Sending, Standing

UNTIL_RESUMED: Final = "it will not start until resumed"
NOTHING: Final = ()
Words = tuple[str, ...]


@dataclass(frozen=True)
class Why:
    """Why a job does not move.

    `command`: what would move it, as the words after ``celery -A proj``; empty where nothing need or can be done.
    ``ANSWER`` in it is for the person to give.
    """

    job_id: str
    state: State
    sentence: str
    command: Words = NOTHING


def explain(one: Standing) -> Why:
    """The sentence and the command for a job that stands so."""
    job = one.job
    if job.state in TERMINAL:
        sentence, command = _ended(one)
    elif job.state is State.RUNNING:
        sentence, command = _running(one)
    elif job.deadline is not None and job.deadline <= one.at:
        sentence, command = _over(one)
    elif job.ticket_id is None:
        sentence, command = _parked(one)
    else:
        sentence, command = _waiting(one)
    return Why(job.id, job.state, sentence, command)


def _verb(name: str, *words: str, guard: bool = True) -> Words:
    dashes = ("--",) if guard and any(word.startswith("-") for word in words) else ()
    return ("supervise", name, *dashes, *words)


def _over(one: Standing) -> tuple[str, Words]:
    return (
        f"its deadline was over at {near(one.job.deadline or one.at, one.at)}: it expires with the next sweep",
        _verb("sweep"),
    )


# --- ended -----------------------------------------------------------------------------------------------


def _ended(one: Standing) -> tuple[str, Words]:
    job = one.job
    at = f"at {near(job.finished_at, one.at)}" if job.finished_at else ""
    sentence = f"{_how(one)} {at}"
    if job.settled_at is not None:
        return sentence, NOTHING
    return f"{sentence}; Celery and whoever waits for the result have not been told yet", _verb("sweep")


def _how(one: Standing) -> str:
    job = one.job
    if job.state is State.CANCELLED:
        why = f" ({one.cancelled_why})" if one.cancelled_why else ""
        return f"cancelled by {one.cancelled_by}{why}," if one.cancelled_by else "cancelled"
    if job.state is State.EXPIRED:
        return f"expired, since {reason(job.stop_reason)},"
    if job.state is State.FAILED:
        return f"failed{_cause(one)}, after {_attempts(job.attempts)},"
    return "completed"


def _cause(one: Standing) -> str:
    cause = one.attempt.cause if one.attempt else None
    return f": {cause}" if cause else f": {reason(one.job.stop_reason)}" if one.job.stop_reason else ""


def _attempts(number: int) -> str:
    return f"{number} attempt{'' if number == 1 else 's'}"


# --- running ---------------------------------------------------------------------------------------------


def _running(one: Standing) -> tuple[str, Words]:
    job, attempt = one.job, one.attempt
    if attempt is not None and attempt.lives and attempt.lease_until <= one.at:
        heard = f"its worker {attempt.worker} was not heard of since {near(attempt.heartbeat_at, one.at)}"
        return f"{heard} and counts as lost; the job starts again with the next sweep", _verb("sweep")
    if job.cancel_requested_at is not None:
        by = f", as {one.cancelled_by} asked" if one.cancelled_by else ""
        return f"cancelling{by}: its worker stops at its next step; {_progress(one)}{_silence(one)}", NOTHING
    if job.pause_requested_at is not None:
        by = f", as {one.paused_by} asked" if one.paused_by else ""
        return f"pausing after the current step{by}; {_progress(one)}", _verb("resume", job.id)
    if attempt is not None and attempt.leaves:
        return (
            f"its worker {attempt.worker} is stopping: at its next step it goes to another; {_progress(one)}",
            NOTHING,
        )
    return _at_work(one)


def _at_work(one: Standing) -> tuple[str, Words]:
    job, attempt = one.job, one.attempt
    since = max((at for at in (job.progress_at, one.stage_at) if at is not None), default=None)
    where = f"running on {attempt.worker} (attempt {attempt.number})" if attempt else "running"
    if one.stall_after is not None and since is not None and apart(since, one.at) > one.stall_after:
        late = f"has made no progress for {span(apart(since, one.at))}, {span(one.stall_after)} are allowed"
        return f"{where}, and {late}; {_progress(one)}", _verb("cancel", job.id)
    return f"{where}; {_progress(one)}{_silence(one)}", NOTHING


def _silence(one: Standing) -> str:
    """A worker that has not been heard of for a third of its lease may be dead: what comes then, and when."""
    attempt = one.attempt
    if attempt is None or not attempt.lives:
        return ""
    silent, left = apart(attempt.heartbeat_at, one.at), apart(one.at, attempt.lease_until)
    if silent < (silent + left) / 3:
        return ""
    then = f"if it is dead, that is noticed after {near(attempt.lease_until, one.at)}"
    return f"; nothing was heard of its worker for {span(silent)}: {then}"


def _progress(one: Standing) -> str:
    job = one.job
    if job.node is None:
        return f"no checkpoint since {near(job.started_at, one.at)}" if job.started_at else "no checkpoint yet"
    at = f" at {near(job.progress_at, one.at)}" if job.progress_at else ""
    return f"last checkpoint {job.node}{at}"


# --- parked, and nothing that starts it ------------------------------------------------------------------


def _parked(one: Standing) -> tuple[str, Words]:
    job = one.job
    if job.question_id is not None:
        return _asking(one)
    if job.stop_reason == USER_PAUSED:
        by = f" by {one.paused_by}" if one.paused_by else ""
        return f"paused{by}; {UNTIL_RESUMED}", _verb("resume", job.id)
    if (job.stop_reason or "").startswith(("incompatible_version:", "unknown_task:")):
        return _unrunnable(one)
    if job.stop_reason is None:
        return "parked for no reason, which must not be", _verb("doctor")
    return reason(job.stop_reason), _verb("resume", job.id)


def _unrunnable(one: Standing) -> tuple[str, Words]:
    job = one.job
    if is_refused(job.stop_reason or ""):
        return f"{reason(job.stop_reason)}: put that right, start workers with it, resume", _verb("resume", job.id)
    return f"{reason(job.stop_reason)}: start one with such code", _worker(job.queue)


def _asking(one: Standing) -> tuple[str, Words]:
    job = one.job
    whom = f" from {', '.join(one.asked_of)}" if one.asked_of else ""
    until = min(at for at in (job.wait_until, job.deadline, LATEST) if at is not None)
    sentence = f"waits for an answer to {one.question_key}{whom} until {near(until, one.at)}"
    if until <= one.at:
        return f"{sentence}, which is over: it expires with the next sweep", _verb("sweep")
    if job.pause_requested_at is not None:
        sentence += f"; once answered, {UNTIL_RESUMED}"
    return sentence, _verb("answer", str(job.question_id), "ANSWER")


# --- waiting for a worker --------------------------------------------------------------------------------


def _waiting(one: Standing) -> tuple[str, Words]:
    job = one.job
    if job.pause_requested_at is not None:
        by = f", as {one.paused_by} asked for a pause" if one.paused_by else ""
        return f"{_before(one)}{UNTIL_RESUMED}{by}", _verb("resume", job.id)
    if one.held is not None:
        held = one.held
        since = f"since {near(held.held_at, one.at)} by {held.actor} ({held.reason})"
        sentence = f"{_before(one)}it does not start while its {held.kind} {held.name} is held, {since}"
        return sentence, _verb("release", f"--{held.kind}={held.name}", guard=False)
    if one.incompatible_since is not None:
        since = near(one.incompatible_since, one.at)
        return f"{_before(one)}no worker that took it since {since} can run it: start one with its code", _worker(
            job.queue
        )
    if job.starts_at is not None and job.starts_at > one.at:
        return f"{_before(one)}starts{_again(one)} at {near(job.starts_at, one.at)}", NOTHING
    return _on_its_way(one)


def _on_its_way(one: Standing) -> tuple[str, Words]:
    job, message = one.job, one.message
    if message is not None and message.published_at is not None:
        return f"{_before(one)}{_sent(one, message)}", _worker(job.queue)
    if not one.released:
        return f"{_before(one)}{_turn(one)}", _verb("kick", job.id)
    failed = f" (the last error: {message.last_error})" if message is not None and message.last_error else ""
    since = f", due since {near(message.due_at, one.at)}" if message is not None else ""
    return f"{_before(one)}its message has not been sent yet{since}{failed}", _verb("kick", job.id)


def _turn(one: Standing) -> str:
    job, runs = one.job, f"; running for {one.job.owner_id}: {_number(one.busy)}" if one.job.owner_id else ""
    return f"waits for its turn in queue {job.queue} (sent and not yet taken: {_number(one.out)}{runs})"


def _number(counted: int) -> str:
    return f"{COUNTED:,} or more" if counted >= COUNTED else f"{counted:,}"


def _sent(one: Standing, message: Sending) -> str:
    sent = message.first_published_at or message.published_at
    since = f" since {near(sent, one.at)}" if sent else ""
    others = (
        f", with {_number(message.ahead)} other{'' if message.ahead == 1 else 's'} before it" if message.ahead else ""
    )
    return f"waits for a worker to take it from queue {one.job.queue}{since}{others}"


def _before(one: Standing) -> str:
    """What came before the wait, where it explains it."""
    job, last = one.job, one.attempt
    if job.state is State.PARKED:
        return f"{reason(job.stop_reason)}; "
    if last is None:
        return ""
    cause = f" ({last.cause})" if last.cause else ""
    told = {
        "lost": f"its worker {last.worker} was lost{cause}; ",
        "handed_over": f"its worker {last.worker} was stopping; ",
        "retried": f"failed{cause} and is to be tried again; ",
    }
    return told.get(last.outcome or "", "")


def _again(one: Standing) -> str:
    return " again" if one.job.attempts else ""


def _worker(queue: str) -> Words:
    return ("worker", "-Q", queue)

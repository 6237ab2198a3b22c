"""What a worker's main process learns of its children, turned into moves of rows: by its thread, in order."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from billiard.exceptions import TimeLimitExceeded

from .errors import Conflict, DatabaseUnavailable, JobNotFound, SuperviseError
from .events import events_of
from .holding import moved
from .lifecycle import State
from .model import Failure, Moved, Stored
from .outcomes import failure_of, printable, show_again
from .publisher import SETTLE
from .relay import Told, mark_settled
from .runner import told_id
from .runtime import Runtime
from .store.door import Row
from .store.holder import FAIL
from .store.leases import FIND_BY_TICKET, LOSE, ask_hand_over
from .store.publishing import HASTEN_SETTLING, STILL_UNSETTLED
from .telling import telling

if TYPE_CHECKING:
    from .request import SupervisedRequest

logger = events_of(__name__)

TIME_LIMIT = "time_limit"
REVOKER = "celery:revoke"
ENDED_BY_US = "its process was ended because of the cancel"
NOTHING = Stored(b"", "none")


def told(runtime: Runtime, request: SupervisedRequest, *, failed: bool) -> None:
    """Celery has been told a final outcome: the job is settled, if this message's attempt ended it, and so."""
    settle_id = told_id(request.ticket_id) if request.supervise_header.get("kind") == SETTLE else None
    runtime.told.put(Told(request.id, settle_id, failed))


def untold(runtime: Runtime, request: SupervisedRequest) -> None:
    """Celery tells nobody of this end: the relay does, at once."""
    runtime.reports.put(lambda: _hasten(runtime, request))


def leaving(runtime: Runtime) -> None:
    """The worker is on its way out, or takes its running tasks back: their bodies are to hand over."""
    runtime.reports.put(lambda: ask_hand_over(runtime.door, runtime.incarnation))


def lost(runtime: Runtime, request: SupervisedRequest, *, why: str) -> None:
    """The child that ran this message is dead: its attempt is lost at once, no lease is waited for (20)."""
    runtime.reports.put(lambda: _lose(runtime, request, why))


def died(runtime: Runtime, request: SupervisedRequest) -> None:
    """The child that ran this message is gone. Celery may take 5 seconds to notice (5.4-5.7), and tells it then.

    Not what its job has ended as: it may have told Celery of that before it left.
    """
    row = runtime.door.one(FIND_BY_TICKET, **_whose(runtime, request))
    if row is not None:
        _lose_attempt(runtime, request, row, "it is gone")


def unrunnable(runtime: Runtime, request: SupervisedRequest, *, error: BaseException) -> None:
    """The message never reached a claim (it cannot be decoded, say): its job fails, by its own ticket (22)."""
    failure = Failure(f"{type(error).__module__}.{type(error).__qualname__}", printable(str(error)))
    runtime.reports.put(
        lambda: runtime.supervisor.fail_waiting(
            request.id, request.ticket_id, failure, reason="unrunnable", actor=f"worker:{request.hostname}"
        )
    )


def retried(runtime: Runtime, request: SupervisedRequest) -> None:
    """Celery has stored RETRY, perhaps over the outcome of a faster next attempt: that is stored again then (26)."""
    runtime.reports.put(lambda: show_again(runtime, request.task, request.context))


def revoked(runtime: Runtime, request: SupervisedRequest, *, reason: str) -> None:
    """A person revoked the job, and a message of it was stopped for that: a cancel request.

    Its row says what came of it, and Celery is told by that alone, once. A child that was terminated for it is lost.
    """

    def act() -> None:
        try:
            cancel_revoked(runtime, request.id, why=reason)
        except (JobNotFound, DatabaseUnavailable):
            _tell_revoked(request, reason)
        except Conflict as busy:
            logger.info("supervise.revoke_without_effect", extra={"job_id": request.id, "why": str(busy)})
        if reason == "terminated":
            _lose(runtime, request, reason)

    runtime.reports.put(act)


def cancel_revoked(runtime: Runtime, job_id: str, *, why: str | None = None, terminate: bool = False) -> None:
    """The cancel request that a revoke is; one that comes after the job's end changes nothing, and is used up, too.

    Raises `JobNotFound`, `DatabaseUnavailable`, `Conflict` (busy).
    """
    reason = why or ("terminated" if terminate else "revoked")
    try:
        runtime.supervisor.cancel(job_id, actor=REVOKER, why=reason, terminate=terminate, grace=timedelta(0))
    except Conflict as conflict:
        if conflict.code != "already_final":
            raise
        logger.info("supervise.revoke_without_effect", extra={"job_id": job_id, "why": str(conflict)})
    runtime.heard.used(job_id)


def _tell_revoked(request: SupervisedRequest, reason: str) -> None:
    """A message by name that was stopped before it became a job: of no job's end anybody else will tell Celery."""
    if request.supervise_header.get("received"):
        with telling():
            request.task.backend.mark_as_revoked(
                request.id, reason, request=request.context, store_result=request.store_errors
            )


def timed_out(runtime: Runtime, request: SupervisedRequest, *, seconds: float | None) -> bool:
    """A hard time limit is about to end the child: the job fails, by its attempt's token or its message's ticket.

    Whether Celery is to be told of a failure. Not where the row says otherwise: the body has just completed.
    """
    error = TimeLimitExceeded(seconds)
    try:
        change = _fail(runtime, request, error)
    except SuperviseError as away:
        logger.warning("supervise.timeout_not_recorded", extra={"job_id": request.id, "why": str(away)})
        runtime.reports.put(lambda: _fail(runtime, request, error))
        return True
    return change is not None and change.state is State.FAILED


def _fail(runtime: Runtime, request: SupervisedRequest, error: Exception) -> Moved | None:
    failure = failure_of(runtime, request.task, error)
    row = runtime.door.one(FIND_BY_TICKET, **_whose(runtime, request))
    if row is None:
        actor = f"worker:{request.hostname}"
        return runtime.supervisor.fail_waiting(request.id, request.ticket_id, failure, reason=TIME_LIMIT, actor=actor)
    failed = runtime.door.one(
        FAIL,
        job_id=request.id,
        token=row["token"],
        actor=f"worker:{request.hostname}",
        reason=TIME_LIMIT,
        settle_after=runtime.door.lease,
        error_type=failure.type,
        cause=f"{failure.type}: {failure.message}",
        traceback=None,
        **vars(failure.stored or NOTHING),
    )
    return moved(failed) if failed else None


def _lose(runtime: Runtime, request: SupervisedRequest, why: str) -> Moved | None:
    """The attempt, or else the telling of its end."""
    row = runtime.door.one(FIND_BY_TICKET, **_whose(runtime, request))
    if row is None:
        _hasten(runtime, request)
        return None
    return _lose_attempt(runtime, request, row, why)


def _lose_attempt(runtime: Runtime, request: SupervisedRequest, row: Row, why: str) -> Moved | None:
    """Only the live attempt that this very message's ticket began, as `FIND_BY_TICKET` found it (22)."""
    change = runtime.door.one(
        LOSE,
        job_id=request.id,
        token=row["token"],
        ticket_id=uuid4(),
        cause=f"its process died: {why}" if row["terminate_at"] is None else ENDED_BY_US,
        actor=f"worker:{request.hostname}",
        settle_after=timedelta(0),
    )
    if change is None:
        return None
    logger.warning("supervise.attempt_lost", extra={"job_id": request.id, "why": why})
    lost_job = moved(change)
    if lost_job.ticket_id is not None:
        runtime.supervisor.publish_ticket(lost_job.job_id, lost_job.ticket_id)
    return lost_job


def _whose(runtime: Runtime, request: SupervisedRequest) -> dict[str, Any]:
    """What names the attempt of this very process: its message's ticket, this worker, the child's pid (22)."""
    return {
        "job_id": request.id,
        "ticket_id": request.ticket_id,
        "incarnation": runtime.incarnation,
        "pid": request.process,
    }


def _hasten(runtime: Runtime, request: SupervisedRequest) -> None:
    """It died after its outcome was committed: whoever tells Celery need not wait for the lease."""
    runtime.door.one(HASTEN_SETTLING, **_whose(runtime, request))


def flush_told(runtime: Runtime) -> None:
    """Mark as settled what has been told, in one statement for all. What is locked just now stays for later."""
    waiting = {}
    while not runtime.told.empty():
        one = runtime.told.get()
        waiting[one.job_id] = one
    if not waiting:
        return
    done = mark_settled(runtime.door, list(waiting.values()), actor="worker", incarnation=runtime.incarnation)
    rest = [job_id for job_id in waiting if job_id not in done]
    for row in runtime.door.all(STILL_UNSETTLED, job_ids=rest, incarnation=runtime.incarnation) if rest else ():
        if waiting[row["job_id"]].failed is (row["current_state"] != State.COMPLETED):
            runtime.told.put(waiting[row["job_id"]])

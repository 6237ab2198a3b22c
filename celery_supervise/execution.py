"""One attempt of a job in this process: runs the body, commits its outcome, then tells Celery what the row says.

Whatever leaves the body, the row is believed, not the exception. What leaves here is a value, an `Exception`, or
a plain `Ignore`: an exception class of ours could not cross the pool's pipe (an `Ignore` with another signature
kills the worker's main process, 5.4-5.7).
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from functools import partial
from typing import Any, NoReturn

from celery.exceptions import Ignore, Reject, Retry, SoftTimeLimitExceeded

from . import queries
from .abandoning import packed
from .aliases import Aliases, in_transaction
from .attempt import StoreJournal
from .block import Blocks
from .body import Body, use
from .envelope import HEADER
from .errors import (
    AttemptEnded,
    Conflict,
    DatabaseUnavailable,
    JobExpired,
    JobFailed,
    QuestionAsked,
)
from .events import events_of
from .holding import Holding
from .lifecycle import TERMINAL, State
from .model import Attempt as AttemptRow
from .model import Failure, Job, Lease, Moved, NewQuestion
from .outcomes import failure_of, pack_result, raised_by_signal, show_again, tellable
from .publisher import REVOKED
from .relay import Told, mark_settled
from .retrying import not_again, retry_of
from .runtime import AnyTask, Runtime
from .store.publishing import HASTEN_SETTLING

logger = events_of(__name__)

PARKED = "PARKED"
SIGNAL_SECONDS = 1.5  # that the main process may need to say why it sent a signal
SIGNAL_PAUSE = 0.05


class Execution:
    """One attempt: from its lease to an outcome that is committed before Celery is told."""

    def __init__(self, task: AnyTask, request: Any, runtime: Runtime, lease: Lease) -> None:
        self.task = task
        self.request = request
        self.runtime = runtime
        self.lease = lease
        self.holding: Holding = runtime.supervisor.holding(lease, worker=request.hostname or "unknown")
        self.journal = StoreJournal(
            runtime.door,
            self.holding,
            question_ttl=runtime.settings.question_ttl,
            on_park=self._show_parked,
            on_ticket=runtime.supervisor.publish_ticket,
            groups=runtime.settings.groups is not None,
            on_asked=runtime.supervisor.publish_notice,
            pack=partial(packed, runtime),
        )
        self.body = Body(
            self.journal,
            job_id=lease.job_id,
            codec=runtime.codec,
            max_value_bytes=runtime.settings.max_value_bytes,
            max_job_bytes=runtime.settings.max_job_bytes,
            in_transaction=in_transaction,
            blocks=Blocks(using=Aliases(runtime.settings.schema).block),
        )
        self.retried: Moved | None = None
        self.spent: Exception | None = None  # what the job fails with where it is not tried again
        self.max_retries: int | None = task.max_retries  # what its last call of retry said
        self.replacing = False  # a call with the job's own id is its replacement
        self.replaced_by: str | None = None  # what has been sent to go on in its place

    def run(self, call: Callable[[], Any]) -> Any:
        """Run the body and commit what came of it."""
        self._show_started()
        if self.lease.resumed:
            self._announce("task-resumed")
        try:
            with use(self.body):
                value = call()
        except BaseException as error:  # noqa: BLE001  # whatever leaves a body is turned into an outcome here
            return self._raised(self.body.dead or error)
        if self.body.dead is not None:  # swallowed by the body: its return value does not count
            return self._raised(self.body.dead)
        if self.retried is not None:  # retry(throw=False)
            return self._not_again(self.retried)
        return self._returned(value)

    # --- what came of it ---------------------------------------------------------------------------------

    def _returned(self, value: Any) -> Any:
        try:
            result = pack_result(self.runtime, value) if self._is_wanted() else None
        except Exception as error:  # noqa: BLE001  # a serialiser raises what it likes: the job fails with it
            return self._failed(error)
        moved = self._commit(lambda: self.holding.complete(result))
        if moved.state is not State.COMPLETED:
            self._left(moved)
        if self._is_followed() and not self.runtime.publisher.reachable():
            self._tell_later()
        return value

    def _tell_later(self) -> NoReturn:
        """Celery would find that it cannot send what comes next, and tell of a failure that is none (5.4-5.7)."""
        self.runtime.door.one(
            HASTEN_SETTLING,
            job_id=self.lease.job_id,
            ticket_id=self.request.__dict__[HEADER]["ticket"],
            incarnation=self.runtime.incarnation,
            pid=os.getpid(),
        )
        raise Ignore("told later: the broker does not answer")

    def _raised(self, error: BaseException) -> Any:
        outcomes: tuple[tuple[type[BaseException], Callable[[Any], Any]], ...] = (
            (AttemptEnded, self._ended),
            (QuestionAsked, self._parked),
            (Retry, self._retry),
            (Ignore, self._ignored),
            (Reject, self._rejected),
            (Exception, self._failed),
        )
        for kind, outcome in outcomes:
            if isinstance(error, kind):
                return outcome(error)
        return self._foreign(error)

    def _failed(self, error: Exception) -> NoReturn:
        moved = self._commit(lambda: self.holding.fail(self.failure(error)))
        if moved.state is State.FAILED and moved.settle_id == self.lease.token:
            raise tellable(error)
        self._left(moved)  # also where somebody else has failed it before: that is told, not this

    def _retry(self, error: Retry) -> NoReturn:
        moved = self.retried
        if moved is None:  # raised by hand, not by self.retry(): nothing was committed yet
            again = retry_of(self.runtime, self.task, self.request, error)
            self.spent = not_again(self.task)
            moved = self._commit(lambda: self.holding.retry(again, self.failure(error)))
            self.publish(moved)
        if moved.state is State.PENDING:
            raise error
        self._not_again(moved)

    def _not_again(self, moved: Moved) -> NoReturn:
        """It has left, and is not retried. Where it has failed for that, Celery is told with what."""
        if moved.state is State.FAILED and moved.settle_id == self.lease.token and self.spent is not None:
            raise tellable(self.spent)
        self._left(moved)

    def _ignored(self, error: Ignore) -> NoReturn:
        """The body ended its task without a result: the job completes without one, Celery is told nothing."""
        if self.retried is not None:  # another task has taken the job over
            self._left(self.retried)
        by = self.replaced_by
        moved = self._commit(lambda: self.holding.replace_plain(by) if by else self.holding.complete(None))
        if moved.state is not State.COMPLETED:
            self._left(moved)
        if not by:
            mark_settled(self.runtime.door, [Told(self.lease.job_id, self.lease.token)], actor="worker")
        raise Ignore(str(error)) from None

    def _rejected(self, error: Any) -> NoReturn:
        if error.requeue:
            moved = self._commit(self.holding.hand_over)
            self.publish(moved)
            self._left(moved)
        moved = self._commit(lambda: self.holding.fail(self.failure(error), reason="rejected"))
        if moved.state is State.FAILED:
            raise error
        self._left(moved)

    def _foreign(self, error: BaseException) -> NoReturn:
        """SystemExit and its like: the worker's shutdown takes the job along, anything else is the body's failure."""
        if not raised_by_signal(error):
            self._failed(JobFailed(f"{type(error).__name__}: {error}"))
        if self._is_to_leave():
            self.publish(self._commit(self.holding.hand_over))
        raise error

    def _is_to_leave(self) -> bool:
        """Whether the worker shuts down. Its main process says so in the row, a moment before or after its signal.

        Not where it has said something else: a time limit has ended the attempt, a revoke has cancelled the job.
        """
        until = time.monotonic() + SIGNAL_SECONDS
        while time.monotonic() < until:
            attempt, job = self._look_at_attempt(), self._look()
            if attempt is None or attempt.ended_at is not None or job is None or job.cancel_requested_at is not None:
                return False
            if attempt.handing_over:
                return True
            time.sleep(SIGNAL_PAUSE)
        return False

    # --- leaving -----------------------------------------------------------------------------------------

    def _commit(self, commit: Callable[[], Moved]) -> Moved:
        try:
            return self._whole(commit)
        except AttemptEnded as ended:
            self._ended(ended)

    def _whole(self, commit: Callable[[], Moved]) -> Moved:
        """A soft time limit that strikes in the middle of it comes too late: what was done already is found so (16)."""
        try:
            return commit()
        except SoftTimeLimitExceeded:
            logger.warning("supervise.late_time_limit", extra={"job_id": self.lease.job_id})
            return commit()

    def _ended(self, ended: AttemptEnded) -> NoReturn:
        """The job left this attempt. What it ended as by our own commit is told now, the rest is not ours to tell."""
        logger.info("supervise.attempt_ended", extra={"job_id": self.lease.job_id, "why": ended.why})
        job = self._look()
        if job is not None and job.settle_id == self.lease.token:
            self._tell(job.state, job.stop_reason)
        if job is not None and job.state is State.PARKED:
            self._store({"reason": job.stop_reason}, PARKED)
            self._announce("task-parked", reason=job.stop_reason)
        self._believe()
        raise Ignore(f"ended: {ended.why}") from None

    def _parked(self, asked: QuestionAsked) -> NoReturn:
        self._announce("task-parked", question_id=asked.question_id)
        self._believe()
        raise Ignore("parked") from None

    def _left(self, moved: Moved) -> NoReturn:
        self._ended(AttemptEnded(moved.state, moved.stop_reason or str(moved.state)))

    def _tell(self, state: State, reason: str | None) -> None:
        """The finisher tells Celery: an expired job fails, a cancelled one is revoked, as Celery itself would."""
        if state is State.EXPIRED:
            raise JobExpired(reason or "expired")
        if state is State.CANCELLED:
            self.task.backend.mark_as_revoked(
                self.lease.job_id, "cancelled", request=self.request, store_result=not self._ignores_result()
            )
            mark_settled(self.runtime.door, [Told(self.lease.job_id, self.lease.token)], actor="worker")
            self._announce("task-revoked", **REVOKED)

    def _believe(self) -> None:
        """After an exit that is not final: a terminal outcome must not stay hidden behind a late PARKED (26)."""
        job = self._look()
        if job is not None and job.state in TERMINAL:
            show_again(self.runtime, self.task, self.request)

    def _look(self) -> Job | None:
        try:
            return queries.job(self.runtime.door, self.lease.job_id)
        except (DatabaseUnavailable, Conflict):
            return None  # nothing can be told now; the relay will

    def _look_at_attempt(self) -> AttemptRow | None:
        try:
            return queries.attempt(self.runtime.door, self.lease.job_id, self.lease.token)
        except (DatabaseUnavailable, Conflict):
            return None

    def publish(self, moved: Moved) -> None:
        """Send the ticket that a move issued."""
        if moved.ticket_id is not None:
            self.runtime.supervisor.publish_ticket(moved.job_id, moved.ticket_id)

    # --- what Celery shows -------------------------------------------------------------------------------

    def _ignores_result(self) -> bool:
        said = self.request.__dict__.get("ignore_result")
        return bool(self.task.ignore_result if said is None else said)

    def _is_wanted(self) -> bool:
        """Whether anybody will be told the result: now, or by another process if this one dies before it tells."""
        return not self._ignores_result() or self._is_followed() or bool(self.request.__dict__.get("chord"))

    def _is_followed(self) -> bool:
        """Whether something is to be sent when the job has completed."""
        return any(self.request.__dict__.get(name) for name in ("callbacks", "chain"))

    def _announce(self, event: str, **fields: Any) -> None:
        """What monitors could not know else, where this worker tells them anything."""
        if self.request.__dict__[HEADER].get("watched"):
            self.runtime.publisher.announce(event, self.lease.job_id, self.request.hostname, **fields)

    def _show_started(self) -> None:
        if self.task.app.conf.task_track_started:
            self._store({"pid": os.getpid(), "hostname": self.request.hostname}, "STARTED")

    def _show_parked(self, question: NewQuestion) -> None:
        self._store({"question": question.key, "question_id": str(question.id)}, PARKED)

    def _store(self, meta: dict[str, Any], state: str) -> None:
        """A state for people to look at. A result backend that is away costs the job nothing."""
        if self._ignores_result():
            return
        try:
            self.task.backend.store_result(self.lease.job_id, meta, state, request=self.request)
        except Exception as error:  # noqa: BLE001  # each backend raises errors of its own
            logger.warning("supervise.state_not_shown", extra={"job_id": self.lease.job_id, "why": str(error)})

    def failure(self, error: BaseException) -> Failure:
        """What is kept of an exception."""
        return failure_of(self.runtime, self.task, error)

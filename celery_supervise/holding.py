"""What the holder of a job does: claim, save, ask, end. Each call is one commit; a lost reply is read back.

An attempt is fenced by its token. A commit that fails is tried again while the lease lasts; then, or when the
row says that the job has moved on, the attempt is over and nothing it does is kept.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, ClassVar, NoReturn, TypeVar
from uuid import UUID, uuid4

from . import queries, refusals
from .errors import AttemptEnded, Conflict, DatabaseUnavailable, LeaseLost
from .intake import legible
from .lifecycle import State
from .model import Attempt, Claimer, Failure, Job, Lease, Moved, NewQuestion, NodeKind, Stored, When
from .store.births import when
from .store.cleanups import REGISTER, SEND_AGAIN
from .store.door import Door, Row, as_uuid, repeated
from .store.holder import ASK, CHECKPOINT, CLAIM, COMPLETE, FAIL, HAND_OVER, JUDGE, PROGRESS, REFUSED
from .store.joining import Joined
from .store.replacing import REPLACE, REPLACE_PLAIN
from .store.retries import RETRY
from .store.sql import Statement

T = TypeVar("T")

FIRST_PAUSE = 0.05  # seconds between two tries of a commit; doubles up to the last
LAST_PAUSE = 2.0
ENDED_IN = {
    "completed": State.COMPLETED,
    "failed": State.FAILED,
    "cancelled": State.CANCELLED,
    "expired": State.EXPIRED,
    "parked": State.PARKED,
    "retried": State.PENDING,
    "handed_over": State.PENDING,
    "replaced": State.PENDING,
}
"""The state in which an attempt left its job, by its outcome. Replaced by what is no job: see `_left_in`."""
LEFT = frozenset({"cancelled", "expired", "parked"})  # what a judgement may have made of any call
BROUGHT = frozenset({COMPLETE, FAIL})  # what such a call brings is kept, also where it comes too late
NOTHING: Mapping[str, Any] = {}
SPENT = "retries_exhausted:"  # why a job failed that was to be retried
MAX_CAUSE = 2000  # characters of an exception's text that are kept on the attempt
MAX_TRACEBACK = 50_000


@dataclass(frozen=True)
class Retry:
    """A retry as Celery asks for it: when, and the message to send then. Other input is another run.

    `retry_for`: for how long after its first error a job may be tried again. `out_of_tries`: this is one too many.
    `spent`: the error of a job that is not tried again.
    """

    due: When | None
    envelope: Stored
    input_digest: str
    retry_for: timedelta | None = None
    out_of_tries: bool = False
    spent: Stored | None = None


@dataclass(frozen=True)
class Replacement:
    """The task that takes a job over: what the row then says of it (as that of a new job), and the message to send."""

    OF_JOB: ClassVar[tuple[str, ...]] = (
        "task",
        "queue",
        "envelope",
        "input_digest",
        "task_version",
        "priority",
        "lost_limit",
        "stall_after",
        "on_stall",
        "ignore_result",
    )

    task: str
    queue: str
    envelope: Stored
    input_digest: str
    task_version: int
    priority: int | None
    lost_limit: int
    stall_after: timedelta | None
    on_stall: str
    ignore_result: bool
    due: When | None = None


def claim(door: Door, job_id: str, ticket_id: UUID, claimer: Claimer) -> Lease | Moved | None:
    """Claim the job by its ticket.

    A `Lease`: the caller runs the body. A `Moved`: the ticket was consumed but the job ended or was paused.
    None: this message gives no right to run (a duplicate, an old one, not due, another version, no such job).
    Raises `DatabaseUnavailable`, `Conflict` (busy).
    """
    return claim_by(lambda params: door.one(CLAIM, **params), door, job_id, ticket_id, claimer)


def claim_by(
    commit: Callable[[dict[str, Any]], Row | None], door: Door, job_id: str, ticket_id: UUID, claimer: Claimer
) -> Lease | Moved | None:
    """As `claim`, by a commit that runs the claim's statement, and may do more where that gives a lease."""
    token = uuid4()
    params: dict[str, Any] = {
        "job_id": job_id,
        "ticket_id": ticket_id,
        "token": token,
        "incarnation": claimer.incarnation,
        "worker": claimer.worker,
        "pid": claimer.pid,
        "versions": list(claimer.versions),
        "settle_after": timedelta(0),
        "actor": f"worker:{claimer.worker}",
    }
    row, again = repeated(lambda: commit(params))
    if row is None:
        return _claimed_after_all(door, job_id, token) if again else None
    return _lease(row, token) if row["current_state"] == State.RUNNING else moved(row)


def _claimed_after_all(door: Door, job_id: str, token: UUID) -> Lease | None:
    """The claim's reply was lost: its own attempt row says whether it committed (protocol 5)."""
    attempt = queries.attempt(door, job_id, token)
    job = queries.job(door, job_id)
    if attempt is None or attempt.ended_at is not None or job is None or job.current_token != token:
        return None
    row = door.one(queries.JOB, job_id=job_id)
    if row is None:
        return None
    return _lease({**row, "job_id": job_id, "lease_until": attempt.lease_until, "resumed": attempt.number > 1}, token)


def _lease(row: Row | Mapping[str, Any], token: UUID) -> Lease:
    return Lease(
        job_id=row["job_id"],
        task=row["task"],
        token=token,
        run_id=row["run_id"],
        number=row["attempt_count"],
        generation=row["generation"],
        lease_until=row["lease_until"],
        deadline=row["expires_at"],
        owner_id=row["owner_id"],
        stored_bytes=row["stored_bytes"],
        lost_count=row["lost_count"],
        resumed=row["resumed"],
    )


def moved(row: Row) -> Moved:
    """A row of a statement that moved a job."""
    return Moved(
        job_id=row["job_id"],
        state=State(row["current_state"]),
        stop_reason=row["watchdog_stop_reason"],
        generation=row["generation"],
        ticket_id=as_uuid(row["ticket_id"]) if row.get("publish_now") else None,
        settle_id=as_uuid(row.get("settle_id")),
        question_id=as_uuid(row.get("question_id")),
        pause_requested=bool(row.get("pause_requested")),
        hand_over=bool(row.get("hand_over")),
    )


class Holding:
    """A held job.

    Methods raise `LeaseLost` where the row says that this attempt is over, `AttemptEnded` where the database stayed
    away longer than the lease; what they return says where the job is now.
    """

    def __init__(self, door: Door, lease: Lease, *, worker: str) -> None:
        self._door = door
        self.lease = lease
        self._actor = f"worker:{worker}"

    def checkpoint(
        self,
        node: str,
        kind: NodeKind,
        value: Stored | None,
        *,
        joined: Joined | None = None,
    ) -> Moved:
        """Save a node and renew the lease.

        `joined`: as the last statement of the caller's transaction. Where the job is judged to move, or this raises,
        the caller must roll back; `judge` then moves the job, or logs that a stale attempt was refused.
        """
        size = len(value.data) if value else 0
        return self._commit(CHECKPOINT, "checkpoint", joined, node=node, kind=str(kind), size=size, **_stored(value))

    def progress(self, current: int | None, total: int | None, message: str | None) -> None:
        """Show progress; not a checkpoint, not judged, but fenced."""
        params = {"job_id": self.lease.job_id, "token": self.lease.token}
        row = self._persist(
            lambda: self._door.one(PROGRESS, **params, current=current, total=total, message=message), "progress"
        )
        if row is None:
            self._refused("progress")

    def register(self, name: str, cleanup: Stored) -> None:
        """Keep what is to be sent if the job does not complete: from this commit on it is, before any effect."""
        params = {"job_id": self.lease.job_id, "token": self.lease.token, "name": name, **_stored(cleanup)}
        if self._persist(lambda: self._door.one(REGISTER, **params), "on_abandon") is None:
            self._refused("on_abandon")

    def ask(self, question: NewQuestion, *, ttl: timedelta, supersedes: UUID | None = None) -> Moved:
        """Store the question and park. `supersedes`: the answered question that this one replaces."""
        moved = self._commit(
            ASK,
            "parked",
            question_id=question.id,
            key=question.key,
            answer_schema=json.dumps(question.schema),
            digest=question.digest,
            ttl=ttl,
            remind_before=question.remind_before,
            assignees=list(question.to),
            approvals=question.approvals,
            self_approval=question.self_approval,
            supersedes=supersedes,
            **_stored(question.content),
        )
        if moved.changed or moved.state is not State.PARKED:
            return moved
        asked = self._persist(lambda: queries.question(self._door, question.id), "ask")
        return replace(moved, question_id=asked.id if asked else None)

    def complete(self, result: Stored | None) -> Moved:
        """Publish the result; after a cancel request or past the deadline it is kept as a rejected one."""
        return self._commit(COMPLETE, "completed", size=len(result.data) if result else 0, **_stored(result))

    def fail(self, failure: Failure, *, reason: str | None = None) -> Moved:
        """End the job as failed."""
        return self._commit(FAIL, "failed", reason=reason, **_failed(failure), **_stored(failure.stored))

    def retry(self, retry: Retry, failure: Failure | None) -> Moved:
        """Back to pending, with a ticket that is due later. Commits before anything is published.

        Failed, where it is one too many, or would begin too late: at or after the deadline, or more than `retry_for`
        after the error.
        """
        error = retry.spent or (failure.stored if failure else None)
        failed = _failed(failure) if failure else {"error_type": None, "cause": None, "traceback": None}
        return self._commit(
            RETRY,
            "retried",
            ticket_id=uuid4(),
            run_id=uuid4(),
            input_digest=retry.input_digest,
            retry_for=retry.retry_for,
            out_of_tries=retry.out_of_tries,
            error_data=error.data if error else None,
            error_encoding=error.encoding if error else "none",
            error_key_id=error.key_id if error else None,
            **when("due", retry.due),
            **failed,
            **_stored(retry.envelope),
        )

    def replace(self, by: Replacement) -> Moved:
        """Back to pending as a job of another task, with nothing remembered. Commits before anything is published."""
        fields = {name: value for name, value in vars(by).items() if name not in {"envelope", "due"}}
        return self._commit(
            REPLACE,
            "replaced",
            ticket_id=uuid4(),
            run_id=uuid4(),
            **fields,
            **when("due", by.due),
            **_stored(by.envelope),
        )

    def replace_plain(self, by: str) -> Moved:
        """Completed, and settled: `by`, which is no job, goes on under this id and is what Celery hears of it."""
        return self._commit(REPLACE_PLAIN, "replaced", by=by)

    def hand_over(self) -> Moved:
        """Back to pending at once, for another worker; no attempt is used up."""
        return self._commit(HAND_OVER, "handed_over", ticket_id=uuid4())

    def judge(self) -> Moved:
        """Let the job move where a cancel, its deadline or a pause says so; saves nothing."""
        return self._commit(JUDGE, "checkpoint")

    def _commit(self, statement: Statement, outcome: str, joined: Joined | None = None, /, **params: Any) -> Moved:
        given = {
            "job_id": self.lease.job_id,
            "token": self.lease.token,
            "actor": self._actor,
            "settle_after": self._door.lease,
            **params,
        }

        def commit() -> Row | None:
            row = self._door.one(statement, joined, **given)
            if row is None and joined is not None and self._still_ours():
                raise refusals.busy(None)  # a joined call never waits for the row (10)
            return row

        row = self._persist(commit, statement.name)
        if row is None:
            return self._read_back(statement, outcome, given, joined=joined is not None)
        return moved(row)

    def _still_ours(self) -> bool:
        job = queries.job(self._door, self.lease.job_id)
        return job is not None and job.current_token == self.lease.token

    def _persist(self, commit: Callable[[], T], call: str) -> T:
        """Try a commit again while the lease may last: each is safe to repeat, its ids were made before (5).

        The worker's main process has renewed the lease until now, at the latest: it cannot last longer than one
        lease from here if it, too, finds the database away.
        """
        pause, until = FIRST_PAUSE, time.monotonic() + self._door.lease.total_seconds()
        while True:
            try:
                return commit()
            except (DatabaseUnavailable, Conflict) as error:
                if time.monotonic() + pause > until:
                    raise AttemptEnded(None, f"{call} could not be committed: {error}") from error
            time.sleep(pause)
            pause = min(LAST_PAUSE, pause * 2)

    def _read_back(self, statement: Statement, outcome: str, given: Mapping[str, Any], *, joined: bool) -> Moved:
        """No row: either our own earlier commit whose reply was lost, or the job has moved on without us."""
        call = statement.name
        attempt, job = self._persist(
            lambda: (
                queries.attempt(self._door, self.lease.job_id, self.lease.token),
                queries.job(self._door, self.lease.job_id),
            ),
            call,
        )
        brought = {name: given[name] for name in ("data", "encoding", "key_id")} if statement in BROUGHT else {}
        state = _left_in(statement, attempt)
        ours = attempt is not None and (attempt.outcome in {outcome, *LEFT} or _is_spent(statement, attempt, job))
        if not ours or job is None or state is None:
            self._refused(call, brought, log=not joined)
        if attempt is not None and attempt.outcome != outcome:
            self._ended_by_others(call, brought)
        # Where this attempt left the job; it may have moved on since.
        return Moved(job.id, state, job.stop_reason, job.generation, changed=False, settle_id=job.settle_id)

    def _refused(self, call: str, brought: Mapping[str, Any] = NOTHING, *, log: bool = True) -> NoReturn:
        """End a stale attempt, and log that it was refused. Not while the caller's own transaction holds the row."""
        row = self._note_refused(call, brought) if log else None
        if log:
            self._send_cleanups()
        state = row["current_state"] if row else None
        raise LeaseLost(state, f"{call} was refused: another attempt may own the job")

    def _ended_by_others(self, call: str, brought: Mapping[str, Any]) -> None:
        """It is told how it ended. What it did meanwhile is kept, and taken back: nobody else knows of it (27)."""
        if brought:
            self._note_refused(call, brought, if_kept=True)
        self._send_cleanups()

    def _send_cleanups(self) -> None:
        params = {"job_id": self.lease.job_id, "token": self.lease.token}
        self._persist(lambda: self._door.all(SEND_AGAIN, **params), "on_abandon")

    def _note_refused(self, call: str, brought: Mapping[str, Any], *, if_kept: bool = False) -> Row | None:
        """Log a refusal, and keep what the attempt brought too late, for operators (12, 27)."""
        params = {"job_id": self.lease.job_id, "token": self.lease.token, "actor": self._actor, "call": call}
        late = {**_stored(None), **brought}
        return self._persist(lambda: self._door.one(REFUSED, **params, **late, if_kept=if_kept), call)


def _left_in(statement: Statement, attempt: Attempt | None) -> State | None:
    """The state in which an attempt has left its job."""
    if statement is REPLACE_PLAIN and attempt is not None and attempt.outcome == "replaced":
        return State.COMPLETED
    return ENDED_IN.get(attempt.outcome or "") if attempt else None


def _is_spent(statement: Statement, attempt: Attempt, job: Job | None) -> bool:
    """Whether this very retry has failed the job, since there was no time left for it."""
    reason = job.stop_reason if job is not None else None
    return statement is RETRY and attempt.outcome == "failed" and (reason or "").startswith(SPENT)


def _stored(value: Stored | None) -> dict[str, Any]:
    if value is None:
        return {"data": None, "encoding": "none", "key_id": None}
    return {"data": value.data, "encoding": value.encoding, "key_id": value.key_id}


def _failed(failure: Failure) -> dict[str, Any]:
    return {
        "error_type": legible(failure.type, limit=MAX_CAUSE),
        "cause": legible(f"{failure.type}: {failure.message}", limit=MAX_CAUSE),
        "traceback": None if failure.traceback is None else legible(failure.traceback, limit=MAX_TRACEBACK),
    }

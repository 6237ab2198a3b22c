"""A shop for the database tests: the real service on a real database, jobs brought into any state through it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

from sqlalchemy.engine import Engine

from celery_supervise import queries
from celery_supervise.errors import PublishFailed
from celery_supervise.holding import Holding, Replacement, Retry, moved
from celery_supervise.lifecycle import State
from celery_supervise.model import (
    Claimer,
    Depth,
    Failure,
    Job,
    Lease,
    Message,
    Moved,
    NewJob,
    NewQuestion,
    NodeKind,
    Settlement,
    Stored,
    When,
)
from celery_supervise.recipients import GroupsOf
from celery_supervise.store.door import Door
from celery_supervise.store.leases import HEARTBEAT, LOCK_LAPSED, LOSE, REAP
from celery_supervise.supervisor import Supervisor
from celery_supervise.sweeps import EXPIRY, REAPING, REMINDING, Sweep, Sweeper, Swept
from celery_supervise.windows import LimitOf

LEASE = timedelta(seconds=60)
NO_TIME = timedelta(0)
HOUR = timedelta(hours=1)
SWEEPING: Mapping[str, Any] = {"began": None, "incarnation": None, "own": []}
"""A pass that begins now, of a process that runs nothing itself: for the statement that finds its rows."""


@dataclass
class Broker:
    """A publisher that keeps what it is given; `down` makes it refuse, `lost` makes it forget.

    What it says of a queue: `others` are messages of others there; `exact` is as of `Depth`.
    """

    messages: list[Message] = field(default_factory=list)
    told: list[Settlement] = field(default_factory=list)
    down: bool = False
    countable: bool = True
    others: int = 0
    exact: bool = True

    def publish(self, message: Message) -> None:
        """Keep the message."""
        if self.down:
            raise PublishFailed("connection refused")
        self.messages.append(message)

    def tell(self, settlement: Settlement) -> bool:
        """Keep what was told."""
        if self.down:
            raise PublishFailed("connection refused")
        self.told.append(settlement)
        return True

    def renew(self, envelope: Stored, job_id: str, *, with_callbacks: bool, completed: bool) -> Stored:
        """The same message; in it, what it was made for."""
        said = {"for": job_id, "with_callbacks": with_callbacks, "completed": completed}
        return Stored(json.dumps({"old": envelope.data.decode(), **said}).encode(), envelope.encoding)

    def depth(self, queue: str) -> Depth | None:
        """How many messages of the queue are kept."""
        if self.down:
            raise PublishFailed("connection refused")
        if not self.countable:
            return None
        count = self.others + sum(message.queue == queue for message in self.messages)
        return Depth(count, exact=self.exact)

    def flush(self) -> None:
        """Forget every message."""
        self.messages.clear()


def stored(text: str = "{}") -> Stored:
    """A stored value."""
    return Stored(text.encode(), "json")


def new_job(job_id: str | None = None, **changes: Any) -> NewJob:
    """A job to submit, with these changes."""
    given: dict[str, Any] = {
        "id": job_id or f"job-{uuid4()}",
        "task": "shop.task",
        "queue": "celery",
        "envelope": stored(),
        "input_digest": "input",
        "ticket_id": uuid4(),
        "run_id": uuid4(),
    }
    return NewJob(**{**given, **changes})


def new_question(key: str = "approve", *, schema: Mapping[str, Any] | None = None, **changes: Any) -> NewQuestion:
    """A question, with these changes."""
    given: dict[str, Any] = {
        "id": uuid4(),
        "key": key,
        "content": stored('{"prompt": "Pay?"}'),
        "schema": {"type": "boolean"} if schema is None else schema,
        "digest": "digest-" + key,
    }
    return NewQuestion(**{**given, **changes})


class Shop:
    """The service and its parts, and short ways to each state."""

    def __init__(
        self,
        engine: Engine,
        *,
        lease: timedelta = LEASE,
        namespace: str = "default",
        lock_timeout: timedelta = timedelta(seconds=5),
        broker: Broker | None = None,
        publish_hold: timedelta = timedelta(seconds=10),
        groups: GroupsOf | None = None,
        notify: str | None = None,
        counted: bool = False,
        window: int | None = None,
        open_limit: LimitOf | None = None,
    ) -> None:
        self.engine = engine
        self.broker = broker or Broker()

        def door(lease: timedelta) -> Door:
            return Door(
                lambda: engine,
                schema="supervise",
                namespace=namespace,
                lease=lease,
                lock_timeout=lock_timeout,
                publish_hold=publish_hold,
                notify=notify,
                counted=counted,
            )

        self.door = door(lease)
        self._boldly = door(NO_TIME)
        self.supervisor = Supervisor(
            self.door, publisher=self.broker, groups=groups, release_window=window, open_limit=open_limit
        )
        self.claimer = Claimer(uuid4(), "worker@test", 4711)

    # --- ways to a state -----------------------------------------------------------------------------

    def pending(self, job_id: str | None = None, **changes: Any) -> Job:
        """A job that waits for a worker."""
        job = new_job(job_id, **changes)
        self.supervisor.submit(job)
        return self.job(job.id)

    def claim(self, job_id: str) -> Lease | Moved | None:
        """Deliver the job's current ticket."""
        ticket = self.job(job_id).ticket_id
        return self.supervisor.claim(job_id, ticket or uuid4(), self.claimer)

    def hold(self, job_id: str) -> Holding:
        """Claim the job: the attempt that runs it."""
        lease = self.claim(job_id)
        assert isinstance(lease, Lease), f"{job_id} was not claimed: {lease}"
        return self.supervisor.holding(lease, worker=self.claimer.worker)

    def running(self, **changes: Any) -> Holding:
        """A new job that runs: its attempt."""
        return self.hold(self.pending(**changes).id)

    def asked(
        self, *, ttl: timedelta = timedelta(hours=1), question: NewQuestion | None = None, **changes: Any
    ) -> NewQuestion:
        """A job parked on an open question; the job's id is that of the question's row."""
        holding = self.running(**changes)
        question = question or new_question()
        holding.ask(question, ttl=ttl)
        return question

    def paused(self, **changes: Any) -> Job:
        """A job that a person paused, parked at its checkpoint."""
        holding = self.running(**changes)
        self.supervisor.pause(holding.lease.job_id, actor="user:ann")
        holding.checkpoint("here", NodeKind.STEP, stored("1"))
        return self.job(holding.lease.job_id)

    def ended(self, state: State, **changes: Any) -> Job:
        """A job in a terminal state, by its own worker or by a person."""
        ends: Mapping[State, Callable[[Holding], object]] = {
            State.COMPLETED: lambda h: h.complete(stored('"done"')),
            State.FAILED: lambda h: h.fail(failure()),
            State.CANCELLED: lambda h: (
                self.supervisor.cancel(h.lease.job_id, actor="user:ann"),
                h.complete(stored('"too late"')),
            ),
            State.EXPIRED: lambda h: h.complete(stored('"too late"')),
        }
        if state is State.EXPIRED:
            changes = {"max_active": timedelta(microseconds=1), **changes}
            holding = self._running_out_of_time(**changes)
        else:
            holding = self.running(**changes)
        ends[state](holding)
        job = self.job(holding.lease.job_id)
        assert job.state is state
        return job

    def _running_out_of_time(self, **changes: Any) -> Holding:
        return self.running(**changes)

    # --- what time does ------------------------------------------------------------------------------

    def beat(self, *holdings: Holding) -> list[str]:
        """One heartbeat of this worker for these attempts; the jobs whose leases it renewed."""
        ids = [holding.lease.job_id for holding in holdings]
        found = self.door.all(HEARTBEAT, incarnation=self.claimer.incarnation, job_ids=ids)
        return [row["job_id"] for row in found]

    def lose(self, holding: Holding, why: str = "its process died") -> Moved | None:
        """The worker saw the attempt's process die."""
        row = self.door.one(
            LOSE,
            job_id=holding.lease.job_id,
            token=holding.lease.token,
            ticket_id=uuid4(),
            settle_after=NO_TIME,
            actor="worker:test",
            cause=why,
        )
        return moved(row) if row else None

    def reap_now(self, job_id: str) -> Moved:
        """The attempt's lease ends, and the sweep takes the job from it."""
        with self.engine.begin() as connection:
            connection.exec_driver_sql(
                "UPDATE supervise.attempts SET lease_until = clock_timestamp() - interval '1 s'"
                f" WHERE job_id = '{job_id}' AND ended_at IS NULL"
            )
        with self.door.batch() as run:
            run(LOCK_LAPSED, job_ids=[job_id], batch=1, **SWEEPING)
            (row,) = run(
                REAP,
                job_ids=[job_id],
                actor="sweep",
                cause="its lease ended",
                settle_after=NO_TIME,
                publish_hold=NO_TIME,
            )
        return moved(row)

    def sweep(self, sweep: Sweep) -> Swept:
        """One pass of a sweep, whenever the last one was, and though this Postgres is younger than a lease."""
        return self.sweeper().run_once(sweep, force=True)

    def sweeper(self) -> Sweeper:
        """A process that sweeps, and holds back for nothing longer than no time."""
        return Sweeper(self._boldly, period=timedelta(hours=1))

    def reap(self) -> Swept:
        """One pass of the sweep that ends leases."""
        return self.sweep(REAPING)

    def expire(self) -> Swept:
        """One pass of the sweep that ends what time is over for."""
        return self.sweep(EXPIRY)

    def remind(self) -> Swept:
        """One pass of the sweep that reminds of questions."""
        return self.sweep(REMINDING)

    # --- looking -------------------------------------------------------------------------------------

    def job(self, job_id: str) -> Job:
        """The job as it is now."""
        job = queries.job(self.door, job_id)
        assert job is not None
        return job

    def events(self, job_id: str) -> list[str]:
        """The names in its log, in order."""
        return [entry.event for entry in queries.entries(self.door, job_id)]

    def job_of(self, question: NewQuestion) -> Job:
        """The job that asked it, as it is now."""
        return self.job(self.supervisor.question(question.id).job_id)


def failure(text: str = "no") -> Failure:
    """Why an attempt failed."""
    return Failure("shop.Broken", text, stored(f'"{text}"'), "Traceback …")


def replacement(task: str = "shop.other", **changes: Any) -> Replacement:
    """A task that takes a job over, with these changes."""
    given: dict[str, Any] = {
        "task": task,
        "queue": "other",
        "envelope": stored('"other"'),
        "input_digest": "other input",
        "task_version": 1,
        "priority": None,
        "lost_limit": 3,
        "stall_after": HOUR,
        "on_stall": "log",
        "ignore_result": False,
    }
    return Replacement(**{**given, **changes})


def retry(due: When | None = None, *, digest: str = "input") -> Retry:
    """A retry as Celery asks for it."""
    return Retry(due, stored('{"retries": 1}'), digest)


def some_uuid() -> UUID:
    """Any id."""
    return uuid4()

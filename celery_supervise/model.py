"""The values that pass between the layers. Frozen, no behaviour beyond naming, no I/O."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import Enum
from typing import Any, Protocol
from uuid import UUID

from .lifecycle import State

MAX_ID_BYTES = 255
"""Longest job id, owner, task name, node name, question key, idempotency key; in UTF-8 bytes."""

STALL_ACTIONS = ("log", "cancel", "fail")
"""What becomes of a job that runs and makes no progress."""

When = datetime | timedelta
"""A time: an aware datetime, or a timedelta from the database's now."""


# --- stored values ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Stored:
    """A value as the database keeps it: bytes, how they are encoded, which key they are encrypted with."""

    data: bytes
    encoding: str
    key_id: str | None = None


class NodeKind(str, Enum):
    """What a node of the journal is."""

    STEP = "step"
    CHECKPOINT = "checkpoint"
    EACH = "each"

    __str__ = str.__str__


@dataclass(frozen=True)
class Node:
    """A place that the job has passed: name, kind, size of its value in bytes, which attempt saved it, when."""

    name: str
    kind: NodeKind
    size: int
    attempt_token: UUID | None = None
    saved_at: datetime | None = None


@dataclass(frozen=True)
class NewQuestion:
    """A question as the body asks it. `schema` is a JSON Schema; `digest` is of all that is shown."""

    id: UUID
    key: str
    content: Stored
    schema: Mapping[str, Any]
    digest: str
    ttl: timedelta | None = None
    remind_before: timedelta | None = None
    to: tuple[str, ...] = ()
    approvals: int = 1
    self_approval: bool = False
    on_change: str = "fail"


@dataclass(frozen=True)
class Answer:
    """An accepted answer, and the digest of the question it was given to."""

    question_id: UUID
    key: str
    value: Stored
    digest: str
    actor: str
    at: datetime


# --- jobs ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class NewJob:
    """All that `submit` stores. Ids are made by the caller, so that an unknown commit can be read back.

    `envelope` is the message to publish; `input_digest` identifies task and arguments; `due`, `deadline`
    and `start_by` are judged on the database's clock.
    """

    id: str
    task: str
    queue: str
    envelope: Stored
    input_digest: str
    ticket_id: UUID
    run_id: UUID
    owner_id: str | None = None
    idempotency_key: str | None = None
    input_version: str | None = None
    task_version: int = 1
    priority: int | None = None
    due: When | None = None
    deadline: When | None = None
    start_by: When | None = None
    max_active: timedelta | None = None
    stall_after: timedelta | None = None
    on_stall: str = "log"
    lost_limit: int = 3
    rerun_of: str | None = None
    ignore_result: bool = False
    stored_bytes: int = 0


@dataclass(frozen=True)
class Job:
    """A job as its owner sees it: the row of `jobs`, without the columns that are the code's own.

    `stage_at`: since when it is at `node`. `progress_at`: when it last saved something or told of progress.
    `stalled_at`: when it was noted that it makes none, until it does again.
    """

    id: str
    namespace: str
    task: str
    owner_id: str | None
    state: State
    stop_reason: str | None
    generation: int
    queue: str
    node: str | None
    run_id: UUID
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    settled_at: datetime | None
    deadline: datetime | None
    wait_until: datetime | None
    starts_at: datetime | None
    pause_requested_at: datetime | None
    cancel_requested_at: datetime | None
    stage_at: datetime | None
    stalled_at: datetime | None
    terminate_after: datetime | None
    progress_at: datetime | None
    progress_current: int | None
    progress_total: int | None
    progress_message: str | None
    attempts: int
    lost_count: int
    log_seq: int
    progress_seq: int
    task_version: int
    input_version: str | None
    idempotency_key: str | None
    rerun_of: str | None
    question_id: UUID | None
    ticket_id: UUID | None
    current_token: UUID | None
    settle_id: UUID | None
    ignore_result: bool
    erased_at: datetime | None


@dataclass(frozen=True)
class Submitted:
    """The outcome of a submit: the job's id and generation, and whether this call made it."""

    job_id: str
    state: State
    generation: int
    created: bool
    released: bool = True


@dataclass(frozen=True)
class Claimer:
    """Who claims: the worker process (`incarnation` is made before its first fork), its names, its code."""

    incarnation: UUID
    worker: str
    pid: int
    versions: tuple[int, ...] = (1,)


@dataclass(frozen=True)
class Lease:
    """A won claim: the right to run until `lease_until`, on the database's clock."""

    job_id: str
    task: str
    token: UUID
    run_id: UUID
    number: int
    generation: int
    lease_until: datetime
    deadline: datetime | None
    owner_id: str | None
    stored_bytes: int
    lost_count: int
    resumed: bool


@dataclass(frozen=True)
class Moved:
    """What a mutation did to the job: the state it is in now, and what the caller must pass on."""

    job_id: str
    state: State
    stop_reason: str | None
    generation: int
    changed: bool = True
    ticket_id: UUID | None = None
    settle_id: UUID | None = None
    question_id: UUID | None = None
    pause_requested: bool = False
    hand_over: bool = False


@dataclass(frozen=True)
class Attempt:
    """One execution of a job, kept as long as the job."""

    token: UUID
    job_id: str
    number: int
    worker: str
    pid: int
    incarnation: UUID
    started_at: datetime
    lease_until: datetime
    heartbeat_at: datetime
    ended_at: datetime | None
    outcome: str | None
    cause: str | None
    traceback: str | None
    checkpoint_ref: str | None
    ticket_id: UUID
    handing_over: bool


@dataclass(frozen=True)
class Cleanup:
    """A signature that is sent if the job does not complete: which attempt (its number) registered it, what became."""

    name: str
    number: int
    registered_at: datetime
    sent_at: datetime | None
    dropped_at: datetime | None


@dataclass(frozen=True)
class Rejected:
    """A result or an error that came too late to count: kept under the attempt (its number) that brought it.

    `size` in bytes, as stored. `stored`: None once it is erased.
    """

    number: int
    kept_at: datetime
    size: int
    stored: Stored | None


@dataclass(frozen=True)
class Question:
    """A question as the one who answers sees it. `voted`: who has voted, where it needs several `approvals`."""

    id: UUID
    job_id: str
    key: str
    status: str
    content: Stored | None
    schema: Mapping[str, Any]
    digest: str
    asked_at: datetime
    expires_at: datetime
    to: tuple[str, ...]
    approvals: int
    self_approval: bool
    answer: Stored | None
    answered_by: str | None
    answered_at: datetime | None
    namespace: str
    owner_id: str | None
    task: str
    job_state: State
    generation: int
    voted: tuple[str, ...] = ()
    deadline: datetime | None = None

    @property
    def open_until(self) -> datetime:
        """Until when it can be answered: its own time, or its job's deadline where that comes first."""
        return self.expires_at if self.deadline is None else min(self.expires_at, self.deadline)


@dataclass(frozen=True)
class Vote:
    """What one person said to a question that needs several; `value` is None once it is erased."""

    person: str
    value: Stored | None
    at: datetime


@dataclass(frozen=True)
class LogEntry:
    """One line of the audit log. `data` has names, sizes, digests and reasons, never values."""

    job_id: str
    sequence_num: int
    event: str
    actor: str
    at: datetime
    data: Mapping[str, Any]


@dataclass(frozen=True)
class LogPage:
    """The newest page of a log in chronological order, and exactly how much it withholds."""

    entries: Sequence[LogEntry]
    returned_count: int
    total_count: int
    withheld_count: int
    truncated: bool


@dataclass(frozen=True)
class Failure:
    """Why an attempt failed: what can be told of the exception without its objects."""

    type: str
    message: str
    stored: Stored | None = None
    traceback: str | None = None


@dataclass(frozen=True)
class Hold:
    """What is held: `kind` is "task" or "owner". `actor`: who did it, or gave the reason last."""

    kind: str
    name: str
    reason: str
    actor: str
    held_at: datetime


# --- publishing ------------------------------------------------------------------------------------------


class MessageKind(str, Enum):
    """What a row of the outbox asks for."""

    RUN = "run"  # deliver the job's message, with its ticket
    SETTLE = "settle"  # tell Celery the outcome that the row holds
    NOTIFY = "notify"  # send the shop's notification task
    CLEANUP = "cleanup"  # send an `on_abandon` signature

    __str__ = str.__str__


@dataclass(frozen=True)
class Message:
    """One thing to publish. `id` is the ticket of a run, the settle id of a settlement."""

    id: UUID
    kind: MessageKind
    job_id: str
    task: str
    queue: str
    envelope: Stored
    state: State
    stop_reason: str | None = None
    detail: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Settlement:
    """An outcome that Celery is still to be told, won by a compare-and-swap on `settle_id`."""

    job: Job
    settle_id: UUID
    envelope: Stored | None
    outcome: Stored | None  # the result of a completed job, the error of a failed one
    worker: str | None = None  # that had its last attempt


@dataclass(frozen=True)
class Depth:
    """How many messages wait in a queue of the broker, those in workers' hands not counted.

    `exact`: all of them are tickets of ours; else ours are at most so many.
    """

    count: int
    exact: bool = True


class Publisher(Protocol):
    """What the service needs from the Celery side: handed in, never imported."""

    def publish(self, message: Message) -> None:
        """Send `message` to the broker. Raises `errors.PublishFailed`; must not block for long."""

    def tell(self, settlement: Settlement) -> bool:
        """Tell Celery an outcome: result backend, callbacks, chord.

        True: told. False: a worker was asked to, by a message. Raises `errors.PublishFailed`.
        """

    def renew(self, envelope: Stored, job_id: str, *, with_callbacks: bool, completed: bool) -> Stored:
        """The message of a job that is run again, for its new id; `completed`: whether the old one did.

        Without `with_callbacks` nothing is called when it ends. Raises `errors.Unreadable`.
        """

    def depth(self, queue: str) -> Depth | None:
        """What the broker has for `queue`; None: cannot be told. Raises `errors.PublishFailed` where it is away."""

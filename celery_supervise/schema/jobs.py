"""The job itself: its row, its values, its log, and what is left of it after prune. No statements."""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    DateTime,
    Index,
    Integer,
    Interval,
    LargeBinary,
    MetaData,
    PrimaryKeyConstraint,
    SmallInteger,
    Table,
    Text,
    text,
)
from sqlalchemy.dialects.postgresql import JSONB, UUID

from celery_supervise.lifecycle import TERMINAL, State
from celery_supervise.model import STALL_ACTIONS

from .columns import IS_OPEN, IS_TERMINAL, bounded, one_of, storage, time, time_now


def jobs(m: MetaData) -> Table:
    """One row a job. All that decides a move stands here: state, ticket, flags, times (protocol 8)."""
    return Table(
        "jobs",
        m,
        Column("id", Text, primary_key=True),
        Column("namespace", Text, nullable=False),
        Column("task", Text, nullable=False),
        Column("owner_id", Text),
        Column("queue", Text, nullable=False),
        Column("priority", SmallInteger),
        Column("current_state", Text, nullable=False),
        Column("watchdog_stop_reason", Text),
        Column("generation", Integer, nullable=False, server_default=text("1")),
        Column("log_seq", Integer, nullable=False, server_default=text("0")),
        Column("progress_seq", Integer, nullable=False, server_default=text("0")),
        # the right to be claimed once
        Column("ticket_id", UUID),
        time("ticket_due_at"),
        time("ticket_released_at"),
        # who runs it
        Column("current_token", UUID),
        Column("run_id", UUID, nullable=False),
        Column("attempt_count", Integer, nullable=False, server_default=text("0")),
        Column("lost_count", Integer, nullable=False, server_default=text("0")),
        Column("lost_limit", Integer, nullable=False, server_default=text("3")),
        # requests
        time("pause_requested_at"),
        time("cancel_requested_at"),
        time("terminate_after"),
        # time
        time_now("created_at"),
        time("started_at"),
        time("finished_at"),
        time("expires_at"),
        time("start_by"),
        Column("question_id", UUID),
        time("wait_until"),
        Column("active_left", Interval),
        time("active_until"),
        # progress
        Column("node", Text),
        time("progress_at"),
        time("stage_at"),
        Column("stall_after", Interval),
        Column("on_stall", Text, nullable=False, server_default=text("'log'")),
        time("stalled_at"),
        Column("progress_current", BigInteger),
        Column("progress_total", BigInteger),
        Column("progress_message", Text),
        Column("stored_bytes", BigInteger, nullable=False, server_default=text("0")),
        # telling Celery
        Column("settle_id", UUID),
        time("settle_due_at"),
        time("settled_at"),
        Column("settle_tries", Integer, nullable=False, server_default=text("0")),
        Column("ignore_result", Boolean, nullable=False, server_default=text("false")),
        # identity
        Column("input_digest", Text, nullable=False),
        Column("input_version", Text),
        Column("task_version", Integer, nullable=False, server_default=text("1")),
        Column("idempotency_key", Text),
        Column("rerun_of", Text),
        # a row that made a sweep fail waits until then
        time("sweep_after"),
        time("incompatible_since"),
        time("erased_at"),
        CheckConstraint(one_of("current_state", State), name="state"),
        CheckConstraint("(current_state = 'running') = (current_token IS NOT NULL)", name="running_has_token"),
        CheckConstraint("current_state <> 'pending' OR ticket_id IS NOT NULL", name="pending_has_ticket"),
        CheckConstraint("ticket_id IS NULL OR current_state IN ('pending', 'parked')", name="ticket_waits"),
        CheckConstraint("(ticket_id IS NULL) = (ticket_due_at IS NULL)", name="ticket_has_due"),
        CheckConstraint("ticket_released_at IS NULL OR ticket_id IS NOT NULL", name="released_is_ticket"),
        CheckConstraint("(question_id IS NULL) = (wait_until IS NULL)", name="question_has_time"),
        CheckConstraint("question_id IS NULL OR current_state = 'parked'", name="question_parks"),
        CheckConstraint("question_id IS NULL OR ticket_id IS NULL", name="question_or_ticket"),
        CheckConstraint(f"({IS_TERMINAL}) = (finished_at IS NOT NULL)", name="terminal_has_end"),
        # Whatever ends a job leaves the debt to tell Celery, and when somebody else may pay it (protocol 26).
        CheckConstraint(f"({IS_TERMINAL}) = (settle_id IS NOT NULL)", name="terminal_has_settle"),
        CheckConstraint(
            "settle_id IS NULL OR settle_due_at IS NOT NULL OR settled_at IS NOT NULL", name="settle_has_due"
        ),
        CheckConstraint("settled_at IS NULL OR settle_id IS NOT NULL", name="settled_has_id"),
        CheckConstraint("active_until IS NULL OR current_state = 'running'", name="active_is_running"),
        CheckConstraint(one_of("on_stall", STALL_ACTIONS), name="on_stall"),
        CheckConstraint("generation >= 1 AND log_seq >= 0 AND progress_seq >= 0", name="counters"),
        CheckConstraint("lost_limit >= 1 AND lost_count >= 0 AND attempt_count >= 0", name="counts"),
        bounded("id"),
        bounded("namespace"),
        bounded("task"),
        bounded("queue"),
        bounded("owner_id"),
        bounded("idempotency_key"),
        # Finds one job a caller asked for twice, whoever comes first (protocol 18).
        Index(
            "jobs_idempotency",
            "namespace",
            text("coalesce(owner_id, '')"),
            "task",
            "idempotency_key",
            unique=True,
            postgresql_where=text("idempotency_key IS NOT NULL"),
        ),
        # One successor a job (protocol 17).
        Index("jobs_rerun_of", "rerun_of", unique=True, postgresql_where=text("rerun_of IS NOT NULL")),
        # What the sweeps look for. Each is partial, so that a finished job is in none of them, and none has a
        # column that a heartbeat or a checkpoint changes: those stay HOT updates.
        # a backlog of released ones costs the relay nothing, and a job that is released at its birth is in neither
        Index(
            "jobs_due",
            "namespace",
            "queue",
            "ticket_due_at",
            postgresql_where=text("ticket_id IS NOT NULL AND ticket_released_at IS NULL"),
        ),
        # The same, for turns between owners (protocol 25). By namespace and queue in one key, so that no other index
        # fits: entered by `jobs_due` each probe would sort all that waits.
        Index(
            "jobs_due_of_owner",
            text("((namespace || '/'::text) || queue)"),
            text("coalesce(owner_id, '')"),
            "ticket_due_at",
            postgresql_where=text("ticket_id IS NOT NULL AND ticket_released_at IS NULL"),
        ),
        # How many an owner has, where that is bounded.
        Index(
            "jobs_open_of_owner",
            "namespace",
            "owner_id",
            postgresql_where=text(f"owner_id IS NOT NULL AND {IS_OPEN}"),
        ),
        Index("jobs_deadline", "expires_at", postgresql_where=text(f"expires_at IS NOT NULL AND {IS_OPEN}")),
        Index("jobs_wait", "wait_until", postgresql_where=text("wait_until IS NOT NULL")),
        Index("jobs_active", "active_until", postgresql_where=text("active_until IS NOT NULL")),
        Index(
            "jobs_start_by",
            "start_by",
            postgresql_where=text("start_by IS NOT NULL AND current_state = 'pending'"),
        ),
        Index(
            "jobs_unsettled",
            "settle_due_at",
            postgresql_where=text(f"settled_at IS NULL AND {IS_TERMINAL}"),
        ),
        # What no code at hand can run (protocol 28).
        Index(
            "jobs_incompatible",
            "incompatible_since",
            postgresql_where=text("incompatible_since IS NOT NULL AND current_state IN ('pending', 'parked')"),
        ),
        # Lists: newest first, by state and by owner.
        Index("jobs_by_state", "namespace", "current_state", "created_at"),
        Index("jobs_by_owner", "namespace", "owner_id", "created_at"),
        # A claim, a park and an end move indexed columns; the page keeps room for the updates between them.
        info=storage(fillfactor=70),
    )


def payloads(m: MetaData) -> Table:
    """A job's values: the message it came with, its result, its error, and results that came too late."""
    return Table(
        "payloads",
        m,
        Column("job_id", Text, nullable=False),
        Column("kind", Text, nullable=False),
        # the attempt that made it; the job's run for an envelope
        Column("ref", UUID, nullable=False),
        Column("data", LargeBinary),
        Column("encoding", Text, nullable=False),
        Column("key_id", Text),
        time_now("created_at"),
        PrimaryKeyConstraint("job_id", "kind", "ref"),
        CheckConstraint("kind IN ('envelope', 'result', 'error', 'rejected')", name="kind"),
    )


def log(m: MetaData) -> Table:
    """What happened to a job, numbered without gaps; append-only, by trigger. It never holds values."""
    return Table(
        "log",
        m,
        Column("job_id", Text, nullable=False),
        Column("sequence_num", Integer, nullable=False),
        Column("event", Text, nullable=False),
        Column("actor", Text, nullable=False),
        Column("at", DateTime(timezone=True), nullable=False),
        Column("data", JSONB, nullable=False, server_default=text("'{}'")),
        PrimaryKeyConstraint("job_id", "sequence_num"),
        CheckConstraint("sequence_num >= 1", name="sequence"),
        # insert only: vacuum is needed to freeze and for the visibility map, not for dead rows
        info=storage(autovacuum_vacuum_insert_scale_factor=0.1),
    )


def tombstones(m: MetaData) -> Table:
    """What is left of a pruned job: its id is used up, and the lines of its log may go."""
    return Table(
        "tombstones",
        m,
        Column("job_id", Text, primary_key=True),
        Column("namespace", Text, nullable=False),
        Column("task", Text, nullable=False),
        Column("state", Text, nullable=False),
        Column("log_seq", Integer, nullable=False),
        time("finished_at", null=False),
        time_now("pruned_at"),
        CheckConstraint(one_of("state", TERMINAL), name="state"),
    )

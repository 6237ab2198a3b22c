"""What executions of a job leave: attempts, checkpoints, cleanups. No statements."""

from __future__ import annotations

from sqlalchemy import (
    CheckConstraint,
    Column,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    PrimaryKeyConstraint,
    Table,
    Text,
    UniqueConstraint,
    text,
)
from sqlalchemy.dialects.postgresql import UUID

from celery_supervise.model import NodeKind

from .columns import bounded, one_of, storage, time, time_now

OUTCOMES = (
    "completed",
    "failed",
    "retried",
    "parked",
    "handed_over",
    "lost",
    "cancelled",
    "expired",
    "replaced",
)


def attempts(m: MetaData) -> Table:
    """One row an execution, with its lease (protocol 19). Once ended it is final, by trigger."""
    return Table(
        "attempts",
        m,
        Column("token", UUID, primary_key=True),
        Column("job_id", Text, nullable=False),
        Column("number", Integer, nullable=False),
        Column("run_id", UUID, nullable=False),
        Column("ticket_id", UUID, nullable=False),
        Column("incarnation", UUID, nullable=False),
        Column("worker", Text, nullable=False),
        Column("pid", Integer, nullable=False),
        Column("task_version", Integer, nullable=False),
        time("started_at", null=False),
        time("lease_until", null=False),
        time("heartbeat_at", null=False),
        time("hand_over_at"),
        time("terminate_at"),
        Column("checkpoint_ref", Text),
        time("ended_at"),
        Column("outcome", Text),
        Column("outcome_generation", Integer),
        Column("cause", Text),
        Column("traceback", Text),
        CheckConstraint("(ended_at IS NULL) = (outcome IS NULL)", name="ended_has_outcome"),
        CheckConstraint(f"outcome IS NULL OR {one_of('outcome', OUTCOMES)}", name="outcome"),
        UniqueConstraint("job_id", "number"),
        # A ticket is used once, whatever a broker does (the job row decides; this makes it impossible).
        UniqueConstraint("ticket_id"),
        # One attempt at a time.
        Index("attempts_live", "job_id", unique=True, postgresql_where=text("ended_at IS NULL")),
        # Heartbeats change lease_until and heartbeat_at only: no index has them, the updates stay HOT.
        Index("attempts_incarnation", "incarnation", postgresql_where=text("ended_at IS NULL")),
        info=storage(
            fillfactor=60,
            # many updates of few live rows: clean up by a constant, not by a share of all history
            autovacuum_vacuum_scale_factor=0.02,
            autovacuum_vacuum_threshold=500,
        ),
    )


def checkpoints(m: MetaData) -> Table:
    """One row a node of a run; saving the node again replaces it. `position`: the order of first arrival."""
    return Table(
        "checkpoints",
        m,
        Column("job_id", Text, nullable=False),
        Column("run_id", UUID, nullable=False),
        Column("node", Text, nullable=False),
        Column("kind", Text, nullable=False),
        Column("position", Integer, nullable=False),
        Column("data", LargeBinary),
        Column("encoding", Text),
        Column("key_id", Text),
        Column("size", Integer, nullable=False, server_default=text("0")),
        Column("attempt_token", UUID, nullable=False),
        time("saved_at", null=False),
        time("logged_at", null=False),
        PrimaryKeyConstraint("job_id", "run_id", "node"),
        CheckConstraint(one_of("kind", NodeKind), name="kind"),
        bounded("node"),
        # a durable loop rewrites one row again and again
        info=storage(fillfactor=85),
    )


def cleanups(m: MetaData) -> Table:
    """What to send if the job ends without completing (`on_abandon`); one a name (protocol 27)."""
    return Table(
        "cleanups",
        m,
        Column("job_id", Text, nullable=False),
        Column("name", Text, nullable=False),
        Column("attempt_token", UUID, nullable=False),
        Column("data", LargeBinary),
        Column("encoding", Text, nullable=False),
        Column("key_id", Text),
        time_now("registered_at"),
        time("dispatched_at"),
        time("dropped_at"),
        PrimaryKeyConstraint("job_id", "name"),
        CheckConstraint("dispatched_at IS NULL OR dropped_at IS NULL", name="one_fate"),
        bounded("name"),
    )

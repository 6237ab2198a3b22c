"""What is to be published, and the loops that publish and sweep. No statements."""

from __future__ import annotations

from sqlalchemy import (
    CheckConstraint,
    Column,
    Index,
    Integer,
    MetaData,
    PrimaryKeyConstraint,
    Table,
    Text,
    text,
)
from sqlalchemy.dialects.postgresql import JSONB, UUID

from celery_supervise.model import MessageKind

from .columns import one_of, storage, time, time_now


def outbox(m: MetaData) -> Table:
    """What is to be published: a copy of the job's ticket, never the right to claim (protocol 1)."""
    return Table(
        "outbox",
        m,
        Column("id", UUID, primary_key=True),
        Column("namespace", Text, nullable=False),
        Column("kind", Text, nullable=False),
        Column("job_id", Text, nullable=False),
        Column("queue", Text, nullable=False),
        time_now("created_at"),
        time("due_at", null=False),
        time("publish_until"),
        time("published_at"),
        time("first_published_at"),
        Column("publish_count", Integer, nullable=False, server_default=text("0")),
        Column("tries", Integer, nullable=False, server_default=text("0")),
        Column("last_error", Text),
        time("done_at"),
        Column("data", JSONB, nullable=False, server_default=text("'{}'")),
        CheckConstraint(one_of("kind", MessageKind), name="kind"),
        # what is to be published: a row leaves this index when it is, or when its reason is gone
        Index(
            "outbox_unpublished",
            "namespace",
            "due_at",
            postgresql_where=text("published_at IS NULL AND done_at IS NULL"),
        ),
        # what may have been lost: published, its ticket still out
        Index(
            "outbox_out",
            "namespace",
            "queue",
            "published_at",
            postgresql_where=text("published_at IS NOT NULL AND done_at IS NULL"),
        ),
        Index("outbox_job", "job_id"),
        info=storage(
            fillfactor=70,
            # a queue table: short-lived rows, a scan must not wade through dead ones
            autovacuum_vacuum_scale_factor=0.02,
            autovacuum_vacuum_threshold=500,
        ),
    )


def queues(m: MetaData) -> Table:
    """What the relay knows of a queue: whose turn it was last, how many it and the broker were seen to have."""
    return Table(
        "queues",
        m,
        Column("namespace", Text, nullable=False),
        Column("name", Text, nullable=False),
        Column("served_owner", Text),
        Column("released_count", Integer, nullable=False, server_default=text("0")),
        Column("broker_count", Integer),
        Column("low_sweeps", Integer, nullable=False, server_default=text("0")),
        time("checked_at"),
        PrimaryKeyConstraint("namespace", "name"),
    )


def sweeps(m: MetaData) -> Table:
    """One row a loop and namespace: who runs it, when it last ran well, if it holds back (protocol 21)."""
    return Table(
        "sweeps",
        m,
        Column("namespace", Text, nullable=False),
        Column("name", Text, nullable=False),
        Column("claimed_by", UUID),
        time("claimed_at"),
        time("last_ok_at"),
        time("hold_until"),
        Column("hold_reason", Text),
        time("mass_seen_at"),
        Column("last_count", Integer, nullable=False, server_default=text("0")),
        time("last_error_at"),
        Column("last_error", Text),
        PrimaryKeyConstraint("namespace", "name"),
    )

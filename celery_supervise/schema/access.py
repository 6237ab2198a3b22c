"""What people and machines may do, and what was replied to them: holds, operations, tokens. No statements."""

from __future__ import annotations

from sqlalchemy import (
    CheckConstraint,
    Column,
    Index,
    MetaData,
    PrimaryKeyConstraint,
    Table,
    Text,
    UniqueConstraint,
    text,
)
from sqlalchemy.dialects.postgresql import JSONB, UUID

from .columns import bounded, time, time_now


def holds(m: MetaData) -> Table:
    """Tasks and owners of which nothing starts for now."""
    return Table(
        "holds",
        m,
        Column("namespace", Text, nullable=False),
        Column("kind", Text, nullable=False),
        Column("name", Text, nullable=False),
        Column("reason", Text, nullable=False),
        Column("actor", Text, nullable=False),
        time_now("held_at"),
        PrimaryKeyConstraint("namespace", "kind", "name"),
        CheckConstraint("kind IN ('task', 'owner')", name="kind"),
    )


def operations(m: MetaData) -> Table:
    """The first reply to a request that named a key: a repeated request gets it again (protocol 31)."""
    return Table(
        "operations",
        m,
        Column("namespace", Text, nullable=False),
        Column("scope", Text, nullable=False),
        Column("key", Text, nullable=False),
        Column("request_digest", Text, nullable=False),
        Column("reply", JSONB, nullable=False),
        Column("job_id", Text),
        time_now("created_at"),
        PrimaryKeyConstraint("namespace", "scope", "key"),
        bounded("key"),
        # prune takes a job's operations with it
        Index("operations_job", "job_id", postgresql_where=text("job_id IS NOT NULL")),
    )


def api_tokens(m: MetaData) -> Table:
    """Bearer tokens of the HTTP API. Only the hash of the secret is kept."""
    return Table(
        "api_tokens",
        m,
        Column("id", UUID, primary_key=True),
        Column("namespace", Text, nullable=False),
        Column("name", Text, nullable=False),
        Column("secret_hash", Text, nullable=False),
        Column("scope", Text, nullable=False),
        Column("owner_id", Text),
        Column("subject", Text, nullable=False),
        time_now("created_at"),
        time("expires_at"),
        time("revoked_at"),
        time("used_at"),
        UniqueConstraint("secret_hash"),
        CheckConstraint("scope IN ('owner', 'answerer', 'operator', 'readonly')", name="scope"),
    )


def meta(m: MetaData) -> Table:
    """Facts of this schema: `min_library`, `epoch` (protocol 32), the broker's digest per namespace."""
    return Table("meta", m, Column("name", Text, primary_key=True), Column("value", Text, nullable=False))

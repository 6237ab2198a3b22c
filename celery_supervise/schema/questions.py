"""Questions, the votes on them, and the links by which one person may answer one question. No statements."""

from __future__ import annotations

from sqlalchemy import (
    Boolean,
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
from sqlalchemy.dialects.postgresql import ARRAY, JSON, UUID

from .columns import bounded, one_of, time, time_now

QUESTION_STATUSES = ("pending", "answered", "expired", "withdrawn", "superseded", "closed")


def questions(m: MetaData) -> Table:
    """One row a question, as it was asked, with its answer."""
    return Table(
        "questions",
        m,
        Column("id", UUID, primary_key=True),
        Column("job_id", Text, nullable=False),
        Column("run_id", UUID, nullable=False),
        Column("question_key", Text, nullable=False),
        Column("status", Text, nullable=False, server_default=text("'pending'")),
        Column("question_data", LargeBinary),
        Column("encoding", Text, nullable=False),
        Column("key_id", Text),
        # json, not jsonb: the order of a form's fields is what people see
        Column("answer_schema", JSON, nullable=False),
        Column("digest", Text, nullable=False),
        Column("asked_by", UUID, nullable=False),
        time("asked_at", null=False),
        time("expires_at", null=False),
        time("remind_at"),
        time("reminded_at"),
        Column("assignees", ARRAY(Text), nullable=False, server_default=text("'{}'")),
        Column("approvals", Integer, nullable=False, server_default=text("1")),
        Column("self_approval", Boolean, nullable=False, server_default=text("false")),
        Column("answer", LargeBinary),
        Column("answer_encoding", Text),
        Column("answer_key_id", Text),
        Column("answered_by", Text),
        time("answered_at"),
        time("closed_at"),
        time("erased_at"),
        CheckConstraint(one_of("status", QUESTION_STATUSES), name="status"),
        # The mission's load-bearing CHECK. A JSON null is an answer: stored as bytes, it is not NULL.
        CheckConstraint(
            "status <> 'answered' OR (answered_at IS NOT NULL AND answered_by IS NOT NULL"
            " AND (answer IS NOT NULL OR erased_at IS NOT NULL))",
            name="answered_has_answer",
        ),
        CheckConstraint("status IN ('answered', 'superseded') OR answer IS NULL", name="answer_is_answered"),
        CheckConstraint("(status IN ('pending', 'answered')) = (closed_at IS NULL)", name="closed_has_time"),
        CheckConstraint("question_data IS NOT NULL OR erased_at IS NOT NULL", name="question_has_content"),
        CheckConstraint("approvals >= 1", name="approvals"),
        bounded("question_key"),
        # One live question a key; one asked anew with other content is kept, superseded (protocol 15).
        Index(
            "questions_key",
            "job_id",
            "run_id",
            "question_key",
            unique=True,
            postgresql_where=text("status IN ('pending', 'answered')"),
        ),
        # Only one question at a time is open for a job (protocol 14).
        Index("questions_open", "job_id", unique=True, postgresql_where=text("status = 'pending'")),
        Index(
            "questions_remind",
            "remind_at",
            postgresql_where=text("status = 'pending' AND remind_at IS NOT NULL AND reminded_at IS NULL"),
        ),
        Index("questions_inbox", "expires_at", postgresql_where=text("status = 'pending'")),
    )


def votes(m: MetaData) -> Table:
    """What each person said to a question that needs several (protocol 31)."""
    return Table(
        "votes",
        m,
        Column("question_id", UUID, nullable=False),
        Column("actor", Text, nullable=False),
        Column("value", LargeBinary),
        Column("encoding", Text, nullable=False),
        Column("key_id", Text),
        time_now("voted_at"),
        time("erased_at"),
        PrimaryKeyConstraint("question_id", "actor"),
        CheckConstraint("value IS NOT NULL OR erased_at IS NOT NULL", name="vote_has_value"),
        bounded("actor"),
    )


def answer_links(m: MetaData) -> Table:
    """Links by which one recipient may answer one question. Only the hash of the secret is kept."""
    return Table(
        "answer_links",
        m,
        Column("id", UUID, primary_key=True),
        Column("question_id", UUID, nullable=False),
        Column("recipient", Text, nullable=False),
        Column("digest", Text, nullable=False),
        Column("secret_hash", Text, nullable=False),
        time_now("created_at"),
        time("expires_at", null=False),
        time("revoked_at"),
        time("used_at"),
        UniqueConstraint("secret_hash"),
        Index("answer_links_question", "question_id"),
    )

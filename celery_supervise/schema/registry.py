"""All tables in one `MetaData`, and how their constraints are named. No statements, no decisions."""

from __future__ import annotations

from sqlalchemy import MetaData

from . import access, jobs, publishing, questions, runs

DEFAULT_SCHEMA = "supervise"
VERSION_TABLE = "version"
"""Alembic's own table; it lies in the schema, since the database is shared with the shop's migrations."""

NAMING = {
    "pk": "%(table_name)s_pkey",
    "uq": "%(table_name)s_%(column_0_N_name)s_key",
    "ck": "%(table_name)s_%(constraint_name)s",
}
TABLES = (
    jobs.jobs,
    jobs.payloads,
    runs.attempts,
    runs.checkpoints,
    questions.questions,
    questions.votes,
    runs.cleanups,
    jobs.log,
    publishing.outbox,
    publishing.queues,
    publishing.sweeps,
    access.holds,
    access.operations,
    jobs.tombstones,
    access.api_tokens,
    questions.answer_links,
    access.meta,
)


def metadata(schema: str = DEFAULT_SCHEMA) -> MetaData:
    """All tables in `schema`. Constraint names follow the convention, so that errors name the rule broken."""
    m = MetaData(schema=schema, naming_convention=NAMING)
    for table in TABLES:
        table(m)
    return m

"""Which of the ids that Celery's revoke named are jobs of ours. Changes nothing."""

from __future__ import annotations

from .sql import OURS, Statement

AMONG_JOBS = Statement(
    "among_jobs",
    f"SELECT jobs.id AS job_id FROM {{s}}.jobs AS jobs WHERE jobs.id = ANY(:job_ids) AND {OURS}",
)

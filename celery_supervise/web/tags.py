"""ETags: generation, log and progress of a job, and how often the database was restored (protocol 32)."""

from __future__ import annotations

from typing import Final

from celery_supervise.model import Job
from celery_supervise.store.door import Door
from celery_supervise.store.sql import Statement

EPOCH: Final = Statement("epoch", "SELECT value FROM {s}.meta WHERE name = 'epoch'")


def epoch(door: Door) -> int:
    """What tells a job from what it was before the database was restored from a backup."""
    row = door.one(EPOCH)
    return 0 if row is None else int(row["value"])


def tag_of(job: Job, epoch_: int) -> str:
    """The ETag of a job: another one after whatever anybody could see of it has changed."""
    return f'"{epoch_}.{job.generation}.{job.log_seq}.{job.progress_seq}"'

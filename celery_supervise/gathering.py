"""How many jobs are accepted at once: a commit for up to `BATCH` of them. Has no rule that a single one has not."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Final

from .errors import Conflict, DatabaseUnavailable, PublishFailed, SuperviseError
from .intake import check_actor, check_job
from .model import NewJob, Submitted
from .service import deferred
from .store import births
from .store.batches import submit_many
from .store.door import Row, repeated
from .store.publishing import STAMP
from .submission import Submission, job_message

BATCH: Final = 500
"""Jobs in one statement."""


class Gathering(Submission):
    """What producers do with many jobs."""

    def submit_many(
        self, jobs: Sequence[NewJob], *, actor: str = "producer", limited: bool = True
    ) -> Sequence[Submitted]:
        """Accept jobs: `submit` for each, in two round trips for up to 500 of one queue, and their publishing.

        One that is refused does not keep the others of its batch; its refusal is raised when they are accepted and
        sent. Those of owners that may only have so many are accepted one by one, where they are `limited`. Raises as
        `submit`.
        """
        for job in jobs:
            check_job(job)
        actor = check_actor(actor)
        alone = len({job.id for job in jobs}) < len(jobs)  # one id twice: the second finds the first
        if alone or (limited and self._has_limits(jobs)):
            return [self.submit(job, actor=actor, limited=limited) for job in jobs]
        return [made for batch in _batches(jobs) for made in self._submit_batch(batch, actor)]

    def _has_limits(self, jobs: Sequence[NewJob]) -> bool:
        return any(self._open_limit(owner) is not None for owner in {job.owner_id for job in jobs})

    def _submit_batch(self, jobs: Sequence[NewJob], actor: str) -> Sequence[Submitted]:
        rows, again = repeated(lambda: self._insert_many(jobs, actor))
        made: dict[str, Submitted] = {}
        refusals: list[SuperviseError] = []
        for job in jobs:
            try:
                made[job.id] = self._made(job, rows[job.id], again=again)
            except SuperviseError as refused:  # of this one alone
                refusals.append(refused)
        self._publish_all([job for job in jobs if job.id in made and made[job.id].created and made[job.id].released])
        if refusals:
            raise refusals[0]
        return list(made.values())

    def _made(self, job: NewJob, row: Row, *, again: bool) -> Submitted:
        if row["job_id"] is None:
            return self._twin(job, row, None, received=False, joined=None, again=again)
        return births.submitted(row, created=True)

    def _insert_many(self, jobs: Sequence[NewJob], actor: str) -> dict[str, Row]:
        queue = jobs[0].queue
        rows = submit_many(
            self.door,
            jobs,
            actor=actor,
            release=not self._windows.is_full(queue),
            window=self._windows.to_fill(),
            **self._hold(None),
        )
        self._windows.counted(queue, full=any(row["full"] for row in rows))
        return {row["given_id"]: row for row in rows}

    def _publish_all(self, jobs: Sequence[NewJob]) -> None:
        """Send what was accepted, in its order. What is not sent, or not stamped, is left to the relay."""
        if self._publisher is None:
            return
        sent: list[str] = []
        failed: dict[str, str] = {}
        for job in jobs:
            try:
                self._publisher.publish(job_message(job))
                sent.append(str(job.ticket_id))
            except PublishFailed as error:  # of this one alone, or a broker that is left alone now
                failed.setdefault(str(error), job.id)
        try:
            if sent:
                self.door.all(STAMP, ids=sent)
        except (DatabaseUnavailable, Conflict) as error:
            failed[str(error)] = jobs[0].id
        for why, job_id in failed.items():
            deferred(job_id, why)


def _batches(jobs: Iterable[NewJob]) -> Iterator[Sequence[NewJob]]:
    """What may be one statement: jobs that follow each other, to one queue."""
    for _, group in groupby(jobs, key=lambda job: job.queue):
        of_queue = list(group)
        yield from (of_queue[start : start + BATCH] for start in range(0, len(of_queue), BATCH))

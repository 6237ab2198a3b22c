"""An executor that knows nothing but a database's URL and a job's id: no app, no broker, no worker.

``python -m tests.acceptance.cold URL JOB_ID`` claims the job by its row's own ticket, enters the body of `interview`
from the top, and commits what it returns.
"""

from __future__ import annotations

import os
import sys
from datetime import timedelta
from uuid import uuid4

from celery_supervise import results
from celery_supervise.attempt import StoreJournal
from celery_supervise.body import Body, use
from celery_supervise.config import Settings
from celery_supervise.engine import create_engine
from celery_supervise.model import Claimer, Lease, Stored
from celery_supervise.store.door import door_of
from celery_supervise.supervisor import Supervisor
from celery_supervise.values import IDENTITY


def main(url: str, job_id: str) -> None:
    """Carry a job to its end."""
    engine = create_engine(url)
    door = door_of(Settings(), lambda: engine, publish_hold=timedelta(0))
    supervisor = Supervisor(door)
    ticket = supervisor.job(job_id).ticket_id
    assert ticket is not None
    lease = supervisor.claim(job_id, ticket, Claimer(uuid4(), "cold", os.getpid()))
    assert isinstance(lease, Lease)
    holding = supervisor.holding(lease, worker="cold")
    journal = StoreJournal(
        door,
        holding,
        question_ttl=timedelta(hours=1),
        on_park=lambda _question: None,
        on_ticket=lambda _job_id, _ticket: None,
        pack=lambda message: Stored(message, "bytes"),
    )
    body = Body(journal, job_id=job_id)
    with use(body):
        value = interview(body, 2)
    holding.complete(results.pack(value, serializer="json", codec=IDENTITY, limit=1000))
    engine.dispose()


def interview(body: Body, count: int) -> list[int]:
    """As in `bodies`; here an effect is a line of output."""
    answers = []
    for number in range(count):
        body.step(f"work {number}", print, f"work {number}")
        answers.append(body.ask(f"ask {number}", "How many?", schema={"type": "integer"}))
    return answers


if __name__ == "__main__":
    main(*sys.argv[1:])

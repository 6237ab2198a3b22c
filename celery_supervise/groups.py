"""The members of a group are accepted together, not one by one. Only gathers: `Supervisor.submit_many` accepts.

Celery sends a group within `app.producer_or_acquire()`, and gives each member the producer that it acquired there
(5.4-5.7): what is submitted with it may wait for the end of that block, where the whole call returns, or raises.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from itertools import groupby
from operator import itemgetter
from typing import Any

from celery import Celery

from .gathering import BATCH
from .model import NewJob
from .runtime import runtime_of

GROUPS = "celery_supervise_groups"


def gather_groups(app: Celery) -> None:
    """Have the app's own `producer_or_acquire` gather what is submitted within it."""
    acquire: Any = app.producer_or_acquire
    app.__dict__[GROUPS] = {}
    app.__dict__["producer_or_acquire"] = lambda producer=None: _sending(app, acquire, producer)


def group_of(app: Celery, producer: Any, options: Any) -> Group | None:
    """The group whose member is submitted with this producer; None: a call by itself."""
    if producer is None or options.get("add_to_parent", True):
        return None
    found: Group | None = app.__dict__[GROUPS].get(id(producer))
    return found


class Group:
    """What is gathered of one group."""

    def __init__(self, app: Celery) -> None:
        self._app = app
        self._jobs: list[tuple[bool, NewJob]] = []

    def add(self, job: NewJob, *, limited: bool) -> None:
        """Take a job; it is accepted when the group is sent, at the latest."""
        self._jobs.append((limited, job))
        if len(self._jobs) >= BATCH:
            self.accept()

    def accept(self) -> None:
        """Have accepted what is here. Raises as `submit_many`."""
        gathered, self._jobs = self._jobs, []
        for limited, jobs in groupby(gathered, key=itemgetter(0)):
            supervisor = runtime_of(self._app).supervisor
            supervisor.submit_many([job for _, job in jobs], actor="producer", limited=limited)


@contextmanager
def _sending(app: Celery, acquire: Callable[[Any], AbstractContextManager[Any]], given: Any) -> Iterator[Any]:
    """A block within which Celery sends a group; or anything else, of which nothing is gathered.

    A producer that the caller brings along was acquired by nobody here: what it sends is not gathered, except where
    it is that of a group around this one.
    """
    with acquire(given) as producer:
        if given is not None:
            yield producer
            return
        group = app.__dict__[GROUPS][id(producer)] = Group(app)
        try:
            yield producer
        finally:  # also where a member was refused: those before it are accepted, as Celery would have sent them
            del app.__dict__[GROUPS][id(producer)]
            group.accept()

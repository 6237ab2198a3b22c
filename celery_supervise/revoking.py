"""Celery's revoke, as a worker hears it: each ends in a cancel request, whether or not a message of the job comes.

Only what people asked this very worker, by its own commands. Celery's set of revoked ids moves no job by itself: it has
what other workers told at a start, and what a worker without us found expired by its clock.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, MutableMapping
from typing import Any, TypeAlias

from celery import bootsteps
from celery.worker.pidbox import Pidbox
from kombu.utils.functional import maybe_list

from .errors import Conflict, JobNotFound
from .heard import Heard, Revoke
from .intake import is_name
from .reports import cancel_revoked
from .runtime import Runtime, runtime_of
from .store.revoking import AMONG_JOBS

Commands: TypeAlias = MutableMapping[str, Callable[..., Any]]

BATCH = 100
"""So many revokes are acted on in a pass, which other duties wait for."""


class HearRevokes(bootsteps.Step):
    """Stands before Celery's own commands, in the mailbox of this worker alone (5.4-5.7)."""

    requires = ("celery.worker.consumer.control:Control",)

    def create(self, consumer: Any) -> None:
        """Once the mailbox is there. It outlives its connections, and so do its commands."""
        heard = runtime_of(consumer.app).heard
        for step in consumer.steps:
            if isinstance(box := getattr(step, "box", None), Pidbox):
                box.node.handlers = _hearing(box.node.handlers, heard)


def _hearing(commands: Commands, heard: Heard) -> Commands:
    def revoke(state: Any, task_id: Any, **kwargs: Any) -> Any:
        heard.add(_names(task_id), terminate=bool(kwargs.get("terminate")))
        return commands["revoke"](state, task_id, **kwargs)

    def terminate(state: Any, signal: Any, task_id: Any, **kwargs: Any) -> Any:
        heard.add(_names(task_id), terminate=True)
        return commands["terminate"](state, signal, task_id, **kwargs)

    return ChainMap({"revoke": revoke, "terminate": terminate}, commands)  # the shop may yet add commands of its own


def _names(task_id: Any) -> list[str]:
    """The ids that a job may have. Celery takes one, or many, of any kind."""
    return [one for one in maybe_list(task_id) or () if isinstance(one, str) and is_name(one)]


def cancel_heard(runtime: Runtime) -> None:
    """Ask for the cancel of the jobs that were revoked; tried again until the database has said what they are."""
    waiting = runtime.heard.waiting()[:BATCH]
    if not waiting:
        return
    found = runtime.door.all(AMONG_JOBS, job_ids=[one.job_id for one in waiting])
    ours = {row["job_id"] for row in found}
    for revoke in waiting:
        if revoke.job_id in ours:
            _cancel(runtime, revoke)
        else:
            runtime.heard.looked(revoke)


def _cancel(runtime: Runtime, revoke: Revoke) -> None:
    try:
        cancel_revoked(runtime, revoke.job_id, terminate=revoke.terminate)
    except JobNotFound:  # removed just now
        runtime.heard.looked(revoke)
    except Conflict:  # somebody has its row: next time
        return

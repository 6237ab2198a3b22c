"""Ends the process of a cancelled attempt that did not stop by itself: that of this attempt, and no other.

In a worker's main process, which owns the attempt. The job's row is locked while the signal is sent: the process can
begin nothing else before it has committed the attempt's end to that row. Moves no job: the process's death does.
"""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from typing import Any

from celery.worker import state

from .errors import Conflict
from .events import events_of
from .request import SupervisedRequest
from .runtime import Runtime
from .store.door import Row
from .store.terminating import DOOM, FIND_DOOMED

logger = events_of(__name__)


def terminate_due(runtime: Runtime) -> None:
    """End what is due. What holds the row just now is about to end by itself, or is looked at again next time."""
    if not state.active_requests:
        return
    for row in runtime.door.all(FIND_DOOMED, incarnation=runtime.incarnation):
        if _is_active(row):
            with suppress(Conflict):
                _terminate(runtime, row)


def _is_active(row: Row) -> bool:
    """Whether the message that began this attempt is the one that this very process has in hand."""
    try:
        return any(_is_of(request, row) for request in tuple(state.active_requests))
    except RuntimeError:  # the main loop changed the set while it was copied: next time
        return False


def _is_of(request: Any, row: Row) -> bool:
    return (
        isinstance(request, SupervisedRequest)
        and (request.id, request.process) == (row["job_id"], row["pid"])
        and str(request.ticket_id) == str(row["ticket_id"])
    )


def _terminate(runtime: Runtime, row: Row) -> None:
    told = {"job_id": row["job_id"], "pid": row["pid"]}
    with runtime.door.batch() as run:
        if not run(DOOM, **told, token=row["token"], incarnation=runtime.incarnation):
            return
        if row["pid"] == os.getpid():  # pools of threads: their process is the worker's own
            logger.warning("supervise.cannot_terminate", extra=told)
            return
        with suppress(ProcessLookupError):
            os.kill(row["pid"], signal.SIGKILL)  # whatever its body catches
    logger.warning("supervise.terminated", extra=told)

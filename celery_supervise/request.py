"""Celery's view of a delivered message in the worker's main process: what it learns is reported, by ticket.

Nothing here waits for the database but the end by a hard time limit, which the row must hold before Celery is told.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any
from uuid import UUID, uuid4
from weakref import ref

import celery
from billiard.einfo import ExceptionWithTraceback  # type: ignore[attr-defined]  # not in its stubs
from billiard.exceptions import Terminated, TimeLimitExceeded, WorkerLostError
from celery import signals
from celery.exceptions import Ignore, Reject, Retry
from celery.worker import state
from celery.worker.request import Request
from celery.worker.state import task_ready
from kombu.serialization import registry  # type: ignore[attr-defined]  # not in its stubs

from . import reports
from .envelope import FORMAT, HEADER, ticket_of
from .publisher import RUN, SETTLE, sends_task_events
from .runtime import runtime_of
from .telling import telling

NOT_FINAL = (Ignore, Reject, Retry)
LOST = (WorkerLostError, SystemExit, KeyboardInterrupt)
FAILS_REJECTED = celery.VERSION >= (5, 7)
"""Whether Celery itself tells of a message that was rejected for good: as a failure, errbacks and all (5.7)."""


def _succeeded(request: Callable[[], SupervisedRequest | None], outcome: Any, **kwargs: Any) -> Any:
    """The child returned: a value has been told, callbacks and all."""
    found = request()
    if found is None:
        return None
    answer = type(found).on_success(found, outcome, **kwargs)
    if not outcome[0]:
        reports.told(runtime_of(found.app), found, failed=False)
    return answer


def _legible(header: dict[str, Any]) -> dict[str, Any]:
    """Our header as it may be read: whatever came, it has a ticket, if need be one that nobody knows."""
    ticket = str(ticket_of(header) or uuid4())
    kind = SETTLE if header.get("kind") == SETTLE else RUN
    return {"v": FORMAT, "ns": header.get("ns"), "kind": kind, "ticket": ticket}


class SupervisedRequest(Request):
    """A request whose end the row is told of. `Task.Request` is Celery's own seam for it."""

    # what celery-types leaves out (5.4-5.7)
    app: Any
    _request_dict: dict[str, Any]
    _content_type: str | None
    _context: Any
    _eventer: Any
    _expires: Any
    _timed_out: bool | None = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """A message that came without our header gets a fresh ticket here, once for this delivery (3)."""
        super().__init__(*args, **kwargs)
        header = self._request_dict.get(HEADER)
        if not isinstance(header, dict) or "ticket" not in header:
            self._request_dict[HEADER] = {
                "v": FORMAT,
                "kind": RUN,
                "ticket": str(uuid4()),
                "received": True,
                "serializer": registry.type_to_name.get(self._content_type),
                "expires": self._expires.isoformat() if self._expires else None,
            }
        else:
            self._request_dict[HEADER] = _legible(header)
        # the child that runs it sends what Celery has no event for
        self._request_dict[HEADER]["watched"] = sends_task_events(self._eventer)
        # Celery's strategy subclasses this class and defines on_success anew (5.4-5.7): only the instance is left.
        # By a weak reference: a cycle would keep the request alive until the collector comes by.
        self.__dict__["on_success"] = partial(_succeeded, ref(self))

    @property
    def supervise_header(self) -> dict[str, Any]:
        """Our header."""
        header: dict[str, Any] = self._request_dict[HEADER]
        return header

    @property
    def context(self) -> Any:
        """The request as tasks and result backends see it."""
        return self._context

    @property
    def process(self) -> int | None:
        """The process that runs the body, None before it does. Of a green thread Celery gives another id (5.4-5.7)."""
        pid: Any = self.worker_pid  # its stubs say str
        return os.getpid() if pid is not None and runtime_of(self.app).green else pid

    @property
    def ticket_id(self) -> UUID:
        """The ticket (or settle id) of this message: reports act only through it (22)."""
        return UUID(self.supervise_header["ticket"])

    def on_failure(self, exc_info: Any, send_failed_event: bool = True, return_ok: bool = False) -> Any:  # noqa: FBT001, FBT002  # Celery's signature
        """The child raised, or died."""
        error = exc_info.exception
        error = error.exc if isinstance(error, ExceptionWithTraceback) else error
        if isinstance(error, TimeLimitExceeded) and not self._may_fail(next(iter(error.args), None)):
            return None
        try:
            with telling():
                answer = super().on_failure(exc_info, send_failed_event=send_failed_event, return_ok=return_ok)
        finally:  # also where Celery could not tell: its result backend may be away
            self._report(error)
        self._report_told(error)
        return answer

    def maybe_expire(self) -> None:
        """Never here: the claim judges it, for the first start only, by the database's clock (4).

        Celery would revoke a job that has long been running when its message comes again.
        """

    def _may_fail(self, seconds: float | None) -> bool:
        """The row fails before Celery is told; where it has ended otherwise, the child's own telling stands."""
        if self._timed_out is None:
            self._timed_out = reports.timed_out(runtime_of(self.app), self, seconds=seconds)
            if not self._timed_out:
                task_ready(self)
                self.acknowledge()
        return self._timed_out

    def _report(self, error: BaseException) -> None:
        """What the row is to be told, whatever Celery has been."""
        if isinstance(error, LOST):
            reports.lost(runtime_of(self.app), self, why=str(error) or type(error).__name__)
        elif isinstance(error, Retry):
            reports.retried(runtime_of(self.app), self)
        elif not isinstance(error, (*NOT_FINAL, Terminated, TimeLimitExceeded)):
            reports.unrunnable(runtime_of(self.app), self, error=error)

    def _report_told(self, error: BaseException) -> None:
        """What Celery has been told."""
        requeued = getattr(error, "requeue", False)  # of a Reject; its stubs do not know it
        if isinstance(error, TimeLimitExceeded):
            self._told_once()
        elif isinstance(error, Reject) and requeued:
            return
        elif isinstance(error, Reject) and not FAILS_REJECTED:
            reports.untold(runtime_of(self.app), self)
        elif not isinstance(error, (Ignore, Retry, Terminated, *LOST)):
            reports.told(runtime_of(self.app), self, failed=True)

    def _told_once(self) -> None:
        """5.4-5.7: after `on_failure` comes `on_timeout`, and would call errbacks and the chord a second time."""
        self._context.errbacks = self._context.chord = None

    def on_timeout(self, soft: bool, timeout: float) -> None:  # noqa: FBT001  # Celery's signature
        """A time limit. With a hard one, prefork has called `on_failure` before; other pools have not (5.4-5.7)."""
        if soft:
            super().on_timeout(soft, timeout)
        elif self._may_fail(timeout):
            with telling():
                super().on_timeout(soft, timeout)
            reports.told(runtime_of(self.app), self, failed=True)

    def cancel(self, pool: Any, signal: Any = None, emit_retry: bool = True) -> None:  # noqa: FBT001, FBT002  # Celery's signature
        """Celery takes a running task back: a cold shutdown (5.5-5.7: before it says so), a lost broker connection.

        Where a pool cannot interrupt its body, that leaves at its next checkpoint. Solo would make it fail (5.5-5.7).
        """
        reports.leaving(runtime_of(self.app))
        with suppress(NotImplementedError):
            super().cancel(pool, signal, **({} if emit_retry else {"emit_retry": False}))

    def revoked(self) -> bool:
        """Whether Celery's revoke stops this message: of its ids, those that this worker heard a person say (22).

        Its set has others, too; for those the row decides, when the message is claimed. What tells of an end is
        never stopped. A message by name may have no row yet: for it Celery's set counts.
        """
        header = self.supervise_header
        if header.get("kind") == SETTLE:
            return False
        if not header.get("received") and self.id not in runtime_of(self.app).heard:
            state.revoked.discard(self.id)
        return bool(super().revoked())

    def terminate(self, pool: Any, signal: Any = None) -> None:
        """A revoke with `terminate`: the process ends once the row proves that it runs just this job.

        Celery would end whatever runs there by now. Green threads have no process of their own to mistake.
        """
        runtime = runtime_of(self.app)
        if runtime.green:
            super().terminate(pool, signal)
        else:
            runtime.heard.add([self.id], terminate=True)

    def _announce_revoked(self, reason: str, terminated: bool, signum: Any, expired: bool) -> None:  # noqa: FBT001  # Celery's signature
        """A person revoked it. As Celery does it, but for what is told to result backend and chord: the row's end."""
        task_ready(self)
        told = {"terminated": terminated, "signum": signum, "expired": expired}
        self.send_event("task-revoked", **told)
        self.acknowledge()
        self._already_revoked = True
        reports.revoked(runtime_of(self.app), self, reason=reason)
        signals.task_revoked.send(self.task, request=self.context, **told)

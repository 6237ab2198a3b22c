"""Errbacks that the library calls itself: one that fails keeps no other, whatever it raises."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
from celery.app.task import Context
from kombu.exceptions import OperationalError

from celery_supervise.errors import Conflict, DatabaseUnavailable, NeedsAnswer
from celery_supervise.publisher import call_errbacks


@dataclass
class Backend:
    """Calls errbacks as Celery does, those that it calls inline; the first raises."""

    error: BaseException
    called: list[str] = field(default_factory=list)

    def _call_task_errbacks(self, request: Any, _error: BaseException, _traceback: Any) -> None:
        (errback,) = request.errbacks
        self.called.append(errback["task"])
        if errback["task"] == "first":
            raise self.error


def request() -> Context:
    """Of a job with two errbacks."""
    return Context(id="job", errbacks=[{"task": "first"}, {"task": "second"}])


@pytest.mark.parametrize("error", [ValueError("no"), SystemExit(1), NeedsAnswer("approve")])
def test_one_that_fails_keeps_no_other(error: BaseException) -> None:
    """Called again it would fail again: the end of its job is told all the same."""
    backend = Backend(error)
    call_errbacks(backend, request(), ValueError("the job's"))
    assert backend.called == ["first", "second"]


@pytest.mark.parametrize(
    "error", [OperationalError(), OSError(), DatabaseUnavailable("away"), Conflict("busy", state=None, detail="busy")]
)
def test_one_that_cannot_be_sent_now_is_sent_later(error: Exception) -> None:
    """The end is not told, so that it is told again, errbacks and all."""
    with pytest.raises(type(error)):
        call_errbacks(Backend(error), request(), ValueError("the job's"))

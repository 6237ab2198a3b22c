"""A plugin of the tests: the garbage collector asks Redis for nothing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from celery.result import AsyncResult


def _forget(result: AsyncResult[Any]) -> None:
    """All of `AsyncResult.__del__` (5.4-5.7) but its UNSUBSCRIBE: that waits for a lock which its thread may hold."""
    remove = getattr(result.backend, "_remove_pending_result", None)
    if remove is not None:
        remove(result.id)


@pytest.fixture(scope="session", autouse=True)
def _results_hold_up_nobody() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(AsyncResult, "__del__", _forget)
        yield

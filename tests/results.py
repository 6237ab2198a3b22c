"""A plugin of the tests: the garbage collector asks Redis for nothing."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from celery.backends.redis import ResultConsumer  # type: ignore[attr-defined]  # its stubs lack it


def _stay_subscribed(_consumer: ResultConsumer, _task_id: str) -> None:
    """Instead of UNSUBSCRIBE, which `AsyncResult.__del__` (5.4-5.7) waits for with a lock that its thread may hold."""


@pytest.fixture(scope="session", autouse=True)
def _results_hold_up_nobody() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ResultConsumer, "cancel_for", _stay_subscribed)
        yield

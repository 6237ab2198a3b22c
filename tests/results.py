"""A plugin of the tests: results are not unsubscribed by the garbage collector."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from celery.result import AsyncResult


@pytest.fixture(scope="session", autouse=True)
def _results_hold_up_nobody() -> Iterator[None]:
    """`AsyncResult.__del__` asks Redis (5.4-5.7); amid another call it waits for a lock that its own thread holds."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delattr(AsyncResult, "__del__")
        yield

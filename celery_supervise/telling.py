"""Whether Celery is being told of an end in this thread: what it then calls was accepted before. Decides nothing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_telling: ContextVar[bool] = ContextVar("telling", default=False)


@contextmanager
def telling() -> Iterator[None]:
    """Calls within this are Celery's own: errbacks, a chord's body, what was linked."""
    token = _telling.set(True)
    try:
        yield
    finally:
        _telling.reset(token)


def is_telling() -> bool:
    """Whether this thread tells of an end just now."""
    return _telling.get()

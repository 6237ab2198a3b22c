"""What Celery's result backend keeps for jobs that wait: renewed, so that it outlives `result_expires`. Moves no job.

A chord is a few keys of the backend. Celery renews them when a member returns (5.4-5.7): a member that waits longer
for a person than they last would lose its chord, and nobody would be told.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any

from celery import Celery
from celery.backends.base import BaseKeyValueStoreBackend
from celery.backends.redis import RedisBackend

from .envelope import Envelope
from .events import events_of
from .lifecycle import State
from .model import Stored
from .publisher import CeleryPublisher, accepted
from .runtime import Runtime
from .store.door import Door, Row
from .store.waiting import WAITING

logger = events_of(__name__)

RENEWALS = 8  # in the time that a key lasts
BATCH = 200
KEYS = ("", ".j", ".t", ".s", ".d", ".c")  # of a group: itself where it was saved, and its chord's (5.4-5.7)
WHERE = (State.PARKED, State.PENDING, State.RUNNING)  # one that leaves a later state for an earlier is seen next time


def period(app: Celery) -> timedelta | None:
    """How often to renew; None where nothing expires, or the backend cannot put it off."""
    backend: Any = app.backend
    if not isinstance(backend, BaseKeyValueStoreBackend) or type(backend).expire is BaseKeyValueStoreBackend.expire:
        return None
    times = [seconds for seconds in (_expires(backend), _chord_expires(backend)) if seconds]
    return timedelta(seconds=min(times) / RENEWALS) if times else None


def _expires(backend: Any) -> Any:
    return backend.expires


def _chord_expires(backend: Any) -> Any:
    return getattr(backend, "chord_expires", None) or backend.expires


def renew(runtime: Runtime) -> int:
    """Renew what is kept for every job that has not ended. Returns the number of those for which something may be."""
    lasting = Lasting(runtime.app.backend, runtime.publisher, accepted(runtime.app))
    return sum(lasting.renew(rows) for state in WHERE for rows in _waiting(runtime.door, state))


def _waiting(door: Door, state: State) -> Iterator[Sequence[Row]]:
    last: Mapping[str, Any] = {"created_at": None, "job_id": ""}
    while rows := door.all(
        WAITING, state=str(state), created_at=last["created_at"], job_id=last["job_id"], batch=BATCH
    ):
        yield rows
        last = rows[-1]


class Lasting:
    """One pass: a group that was renewed is not renewed again."""

    def __init__(self, backend: Any, publisher: CeleryPublisher, accepted: frozenset[str]) -> None:
        self._backend = backend
        self._publisher = publisher
        self._accepted = accepted
        self._groups: set[str] = set()

    def renew(self, rows: Sequence[Row]) -> int:
        """Renew what is kept for these jobs: their state, where they are shown as parked, and their chords."""
        parked = [row["job_id"] for row in rows if row["current_state"] == State.PARKED and not row["ignore_result"]]
        groups = {group for row in rows for group in self._of(row)} - self._groups
        self._groups |= groups
        self._renew_results([*parked, *self._renew_groups(sorted(groups))])
        return len(parked) + len(groups)

    def _of(self, row: Row) -> set[str]:
        try:
            envelope = self._publisher.open(Stored(bytes(row["data"]), row["encoding"], row["key_id"]))
            return groups_of(envelope) if envelope.content_type in self._accepted else set()
        except Exception as error:  # noqa: BLE001  # a message that cannot be read holds up no other
            logger.warning("supervise.message_unread", extra={"job_id": row["job_id"], "why": str(error)})
            return set()

    def _renew_groups(self, groups: Sequence[str]) -> Iterator[str]:
        """Renew chords. Yields the members of those whose results are read one by one: chords of groups."""
        keys = [self._backend.get_key_for_group(group, key) for key in KEYS for group in groups]
        renewed = self._expire(keys, _chord_expires(self._backend))
        for group, saved in zip(groups, renewed, strict=False):
            if saved:
                yield from self._backend.restore_group(group, cache=False).as_list()

    def _renew_results(self, ids: Sequence[str]) -> None:
        self._expire([self._backend.get_key_for_task(one) for one in ids], self._backend.expires)

    def _expire(self, keys: Sequence[Any], seconds: float | None) -> list[bool]:
        """Put off the expiry of keys, whether or not they are there; says which were."""
        if not seconds or not keys:
            return []
        if not isinstance(self._backend, RedisBackend):
            return [bool(self._backend.expire(key, int(seconds))) for key in keys]
        with self._backend.client.pipeline(transaction=False) as pipe:
            for key in keys:
                pipe.expire(key, int(seconds))
            return [bool(found) for found in pipe.execute()]


def groups_of(envelope: Envelope) -> set[str]:
    """The groups that wait for this message's task, in chords around it however deep: itself, its chain, its body."""
    _args, _kwargs, embed = envelope.content()
    own = envelope.headers.get("group")
    around = {embed_name: embed.get(embed_name) for embed_name in ("chord", "chain", "callbacks")}
    return {str(own), *_groups_in(around)} if own and embed.get("chord") else set(_groups_in(around))


def _groups_in(value: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        if group := value.get("group_id"):
            yield str(group)
        for one in value.values():
            yield from _groups_in(one)
    elif isinstance(value, (list, tuple)):
        for one in value:
            yield from _groups_in(one)

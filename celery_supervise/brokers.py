"""One namespace, one broker: the first relay's is remembered, and a relay with another one refuses. Sends nothing.

Two apps that share a schema and, by mistake, a namespace would each send the other's jobs to where nobody knows them.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from hashlib import sha256
from typing import Final

from .errors import ConfigError
from .store.brokers import BROKER, FIRST_BROKER, MOVE_BROKER
from .store.door import Door

LOOK_AGAIN: Final = 60.0  # seconds for which it is taken for granted that the namespace has not moved


class Broker:
    """The broker of an app, as its namespace knows it. `place` says where it is, without a password: `host:port/name`.

    Read when it is first needed: a broker's settings may be wrong in a process that never sends.
    """

    def __init__(self, door: Door, place: Callable[[], str]) -> None:
        self._door = door
        self._place = place
        self._good_until = 0.0

    def check(self) -> None:
        """Raises `ConfigError` where the namespace has another broker; the first that asks is its own."""
        if time.monotonic() < self._good_until:
            return
        if not self.is_ours():
            problem = f"{self._place()} is not the broker that namespace {self._door.namespace!r} has in this schema"
            raise ConfigError("broker_url", f"{problem}. {self.advice}")
        self._good_until = time.monotonic() + LOOK_AGAIN

    def is_ours(self) -> bool:
        """Whether the namespace has this broker, or none yet, and from now on this one."""
        known = self.known()
        if known is None:
            self._door.all(FIRST_BROKER, digest=self._digest())
            known = self.known()
        return known == self._digest()

    def known(self) -> str | None:
        """The digest of the namespace's broker; None where no relay has run yet."""
        row = self._door.one(BROKER)
        return None if row is None else str(row["digest"])

    def differs(self) -> bool:
        """Whether the namespace has another broker. Changes nothing."""
        return self.known() not in {None, self._digest()}

    def move(self) -> None:
        """From now on the namespace has this broker. What waits in the old one is found to be lost, and sent again."""
        self._door.all(MOVE_BROKER, digest=self._digest())
        self._good_until = 0.0

    @property
    def advice(self) -> str:
        """What helps where they differ."""
        return (
            "Another app? Set supervise_namespace to a name of its own. The same broker by another name? Write it alike"
            f" everywhere. Has it moved to {self._place()}? Run: celery -A proj supervise sweep --move-broker"
        )

    def _digest(self) -> str:
        return sha256(self._place().encode()).hexdigest()

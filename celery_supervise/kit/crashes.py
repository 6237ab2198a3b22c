"""Deaths of a body, scripted: at a named step, checkpoint or item of a loop, before or after that is saved.

A thread cannot be killed. What others see of a death is played: the attempt is lost, by the statement that a worker's
main process runs when its child died, and the body hears that as it would hear it of any attempt that is over.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import Any, NoReturn
from unittest.mock import patch
from uuid import uuid4

from ..body import current_body
from ..errors import LeaseLost
from ..holding import moved
from ..steps import Stepping
from ..store.leases import LOSE
from ..supervisor import Supervisor
from ..task import SupervisedTask
from ..wording import shown

NOWHERE: Any = object()


@dataclass(frozen=True)
class Place:
    """Where a body dies. `saved`: right after that was saved, else right before; `item`: of a loop, by its key."""

    name: str
    saved: bool
    item: Any = NOWHERE

    def __str__(self) -> str:
        item = "" if self.item is NOWHERE else f", item={self.item!r}"
        return f"crash.{'after' if self.saved else 'before'}({shown(self.name)}{item})"


class NeverReached(AssertionError):
    """No body came to where it was to die: a name is misspelt, or the step is gone. `places`: these."""

    def __init__(self, places: tuple[Place, ...]) -> None:
        super().__init__(f"no body came to {', '.join(map(str, places))}")
        self.places = places


@dataclass
class Crashes:
    """Says where bodies die, each place once. `happened`: where they have."""

    supervise: Supervisor
    ahead: list[Place] = field(default_factory=list)
    happened: list[Place] = field(default_factory=list)

    def after(self, name: str, *, item: Any = NOWHERE) -> None:
        """The next body dies right after it has saved the step or checkpoint `name`, or this item of the loop."""
        self.ahead.append(Place(name, saved=True, item=item))

    def before(self, name: str, *, item: Any = NOWHERE) -> None:
        """The next body dies right before that is saved: what was done for it has happened, and will happen again."""
        self.ahead.append(Place(name, saved=False, item=item))

    def check(self) -> None:
        """Raise `NeverReached` for places where nobody has died."""
        if self.ahead:
            raise NeverReached(tuple(self.ahead))

    def reached(self, place: Place) -> None:
        """Die, if it is said so."""
        body = current_body.get()
        if place in self.ahead and body is not None and body.mode == "worker":
            self.ahead.remove(place)
            self.happened.append(place)
            self._die(body.job_id, body.attempt_id)

    def _die(self, job_id: str, attempt_id: str) -> NoReturn:
        lost = self.supervise.door.one(
            LOSE,
            job_id=job_id,
            token=attempt_id,
            ticket_id=uuid4(),
            cause="its process died: so says the test",
            actor="test",
            settle_after=timedelta(0),
        )
        change = moved(lost) if lost else None
        if change is not None and change.ticket_id is not None:
            self.supervise.publish_ticket(job_id, change.ticket_id)
        raise LeaseLost(change.state if change else None, "the test has killed it")


@contextmanager
def crashing(supervise: Supervisor) -> Iterator[Crashes]:
    """Watch the calls that bodies make, meanwhile. At the end each death must have come about: see `check`."""
    crashes = Crashes(supervise)
    step, of_options = SupervisedTask.step, Stepping.step
    checkpoint, each = SupervisedTask.checkpoint, SupervisedTask.each
    with (
        patch.object(SupervisedTask, "step", _stepping(crashes, step)),
        patch.object(Stepping, "step", _stepping(crashes, of_options)),
        patch.object(SupervisedTask, "checkpoint", _checkpoint(crashes, checkpoint)),
        patch.object(SupervisedTask, "each", _each(crashes, each)),
    ):
        yield crashes


def _stepping(crashes: Crashes, original: Callable[..., Any]) -> Callable[..., Any]:
    def step(self: Any, name: str, fn: Any, /, *args: Any, **kwargs: Any) -> Any:
        before = Place(name, saved=False)
        run = partial(_and_die, crashes, before, fn) if before in crashes.ahead else fn
        value = original(self, name, run, *args, **kwargs)
        crashes.reached(Place(name, saved=True))
        return value

    return step


def _and_die(crashes: Crashes, place: Place, fn: Any, /, *args: Any, **kwargs: Any) -> Any:
    value = fn(*args, **kwargs)
    crashes.reached(place)
    return value


def _checkpoint(crashes: Crashes, original: Callable[..., Any]) -> Callable[..., Any]:
    def checkpoint(self: Any, node: str, /, **bindings: Any) -> None:
        crashes.reached(Place(node, saved=False))
        original(self, node, **bindings)
        crashes.reached(Place(node, saved=True))

    return checkpoint


def _each(crashes: Crashes, original: Callable[..., Any]) -> Callable[..., Any]:
    def each(self: Any, name: str, items: Any, *, key: Any, **options: Any) -> Any:
        def watched() -> Iterator[Any]:
            for item in items:
                yield item  # asked for the next one, the loop has saved this one
                crashes.reached(Place(name, saved=True, item=key(item)))

        loop = original(self, name, watched(), key=key, **options)
        return _Loop(loop, lambda item: crashes.reached(Place(name, saved=False, item=key(item))))

    return each


class _Loop:
    """A loop that says when an item is done, before it is saved."""

    def __init__(self, loop: Any, done: Callable[[Any], None]) -> None:
        self.__dict__.update(_loop=loop, _done=done)

    def __iter__(self) -> Iterator[Any]:
        for item in self.__dict__["_loop"]:
            yield item
            self.__dict__["_done"](item)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["_loop"], name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self.__dict__["_loop"], name, value)

    def __getitem__(self, name: str) -> Any:
        return self.__dict__["_loop"][name]

    def __setitem__(self, name: str, value: Any) -> None:
        self.__dict__["_loop"][name] = value

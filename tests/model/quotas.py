"""What many jobs share: how many of an owner's run, and how many are open (protocol 25). Explored whole, like the rest.

Beside the model of one job's steps, since here the jobs are alike and their number is the matter. Each step is what one
statement does under its snapshot; statements of relays and submits are taken apart where another may come between.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from enum import Enum
from typing import NamedTuple, TypeVar

_T = TypeVar("_T")

LIMIT = 1
"""Of what runs, and of what is open."""


class Place(str, Enum):
    """Where a job of the owner is."""

    UNBORN = "unborn"
    WAITING = "waiting"
    RELEASED = "released"
    RUNNING = "running"
    PARKED = "parked"
    ENDED = "ended"
    REFUSED = "refused"


OPEN = frozenset({Place.WAITING, Place.RELEASED, Place.RUNNING, Place.PARKED})


@dataclass(frozen=True)
class Rules:
    """Each in words is what the real statements do; taken out one by one, each must be missed."""

    queue_is_locked: bool = True  # one relay counts and releases at a time
    counts_behind_the_lock: bool = True  # in a statement that begins once the lock is held
    counts_released: bool = True  # what is released will run
    new_waits: bool = True  # a submit releases nothing of an owner who is counted
    answered_waits: bool = True  # neither does what goes on
    parked_is_free: bool = True  # a parked job takes no place
    relay_comes_again: bool = True  # what waits is looked at until it is out
    owner_is_locked: bool = True  # one submit of an owner counts and inserts at a time
    counts_behind_the_owners_lock: bool = True  # likewise in a statement of its own
    parked_is_open: bool = True  # it has not ended


RULES = tuple(field.name for field in fields(Rules))


class Hand(NamedTuple):
    """A relay or a submit at work: what it has counted, and whether it has the lock."""

    locked: bool = False
    counted: int | None = None


class State(NamedTuple):
    """The owner's jobs, and who is at work: relays, and one submit for each job that is not there yet."""

    jobs: tuple[Place, ...]
    relays: tuple[Hand | None, ...]
    submits: tuple[Hand | None, ...]
    passes: int = 0

    def with_job(self, index: int, place: Place) -> State:
        """The job there."""
        return self._replace(jobs=_put(self.jobs, index, place))


START = State((Place.UNBORN,) * 3, (None, None), (None, None, None))


@dataclass(frozen=True)
class Scene:
    """Which of the two limits there is; and whether people answer."""

    name: str
    of_open: bool = False
    answered: bool = True


SCENES = (
    Scene("so many run"),
    Scene("so many run, and nobody answers", answered=False),
    Scene("so many are open", of_open=True),
)


def explore(rules: Rules, scene: Scene) -> tuple[int, str]:
    """How many states there are, and which promise is broken in one of them; empty: none is."""
    before: dict[State, list[State]] = {START: []}
    queue = deque([START])
    while queue:
        state = queue.popleft()
        if _too_many(state, scene):
            return len(before), "more than may be"
        for one in _moves(rules, state, scene):
            if one not in before:
                before[one] = []
                queue.append(one)
            before[one].append(state)
    return len(before), "" if _can_rest(before) == before.keys() else "a job waits for ever"


def _too_many(state: State, scene: Scene) -> bool:
    limited = OPEN if scene.of_open else {Place.RELEASED, Place.RUNNING}
    return sum(job in limited for job in state.jobs) > LIMIT


def _can_rest(before: Mapping[State, Sequence[State]]) -> set[State]:
    """The states from which every job can come to its end, or to a person who need not answer."""
    rest = {Place.ENDED, Place.REFUSED, Place.PARKED}
    found = {state for state in before if set(state.jobs) <= rest}
    queue = list(found)
    while queue:
        for one in before[queue.pop()]:
            if one not in found:
                found.add(one)
                queue.append(one)
    return found


def _moves(rules: Rules, state: State, scene: Scene) -> Iterator[State]:
    for index, job in enumerate(state.jobs):
        if job is Place.UNBORN:
            yield from _submits(rules, state, index, scene)
        else:
            yield from _lives(rules, state, index, scene)
    if not scene.of_open and (rules.relay_comes_again or state.passes < len(state.relays)):
        for index, relay in enumerate(state.relays):
            yield from _relays(rules, state, index, relay)


def _lives(rules: Rules, state: State, index: int, scene: Scene) -> Iterator[State]:
    job = state.jobs[index]
    if job is Place.WAITING and scene.of_open:
        yield state.with_job(index, Place.RELEASED)
    if job is Place.RELEASED:
        yield state.with_job(index, Place.RUNNING)
    if job is Place.RUNNING:
        yield state.with_job(index, Place.ENDED)
        yield state.with_job(index, Place.PARKED)
    if job is Place.PARKED and scene.answered:
        yield state.with_job(index, Place.WAITING if rules.answered_waits or scene.of_open else Place.RELEASED)


# --- the relay -------------------------------------------------------------------------------------------


def _relays(rules: Rules, state: State, index: int, relay: Hand | None) -> Iterator[State]:
    if relay is None:
        if Place.WAITING in state.jobs:
            begun = Hand(counted=None if rules.counts_behind_the_lock else _busy(rules, state))
            yield state._replace(relays=_put(state.relays, index, begun))
    elif not relay.locked:
        if not (rules.queue_is_locked and any(other and other.locked for other in state.relays)):
            yield state._replace(relays=_put(state.relays, index, relay._replace(locked=True)))
    elif relay.counted is None:
        yield state._replace(relays=_put(state.relays, index, relay._replace(counted=_busy(rules, state))))
    else:
        yield _release(rules, state, index, LIMIT - relay.counted)


def _busy(rules: Rules, state: State) -> int:
    places = {Place.RUNNING}
    places |= {Place.RELEASED} if rules.counts_released else set()
    places |= set() if rules.parked_is_free else {Place.PARKED}
    return sum(job in places for job in state.jobs)


def _release(rules: Rules, state: State, index: int, room: int) -> State:
    waiting = [number for number, job in enumerate(state.jobs) if job is Place.WAITING][: max(0, room)]
    for number in waiting:
        state = state.with_job(number, Place.RELEASED)
    passes = state.passes if rules.relay_comes_again else state.passes + 1
    return state._replace(relays=_put(state.relays, index, None), passes=passes)


# --- the submit ------------------------------------------------------------------------------------------


def _submits(rules: Rules, state: State, index: int, scene: Scene) -> Iterator[State]:
    if not scene.of_open:
        yield state.with_job(index, Place.WAITING if rules.new_waits else Place.RELEASED)
        return
    submit = state.submits[index]
    if submit is None:
        begun = Hand(counted=None if rules.counts_behind_the_owners_lock else _open(rules, state))
        yield state._replace(submits=_put(state.submits, index, begun))
    elif not submit.locked:
        if not (rules.owner_is_locked and any(other and other.locked for other in state.submits)):
            yield state._replace(submits=_put(state.submits, index, submit._replace(locked=True)))
    elif submit.counted is None:
        yield state._replace(submits=_put(state.submits, index, submit._replace(counted=_open(rules, state))))
    else:
        place = Place.WAITING if submit.counted < LIMIT else Place.REFUSED
        yield state.with_job(index, place)._replace(submits=_put(state.submits, index, None))


def _open(rules: Rules, state: State) -> int:
    return sum(job in OPEN and (rules.parked_is_open or job is not Place.PARKED) for job in state.jobs)


def _put(values: tuple[_T, ...], index: int, value: _T) -> tuple[_T, ...]:
    return (*values[:index], value, *values[index + 1 :])

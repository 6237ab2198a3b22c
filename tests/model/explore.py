"""Breadth-first search of all reachable worlds: shortest traces, and what can never come to rest. Knows no rule."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from itertools import pairwise

from celery_supervise.lifecycle import Event, State

from .actions import moves
from .canonical import canonical, renamed, swapped
from .context import Model
from .invariants import COMES_TO_REST, Promises, quiescent
from .machine import World
from .steps import NAMES, Step


@dataclass(frozen=True)
class Violation:
    """An invariant that does not hold, and the shortest way there."""

    invariant: str
    trace: tuple[str, ...]

    def __str__(self) -> str:
        return "\n".join([self.invariant, *(f"  {n:2} {line}" for n, line in enumerate(self.trace, 1))])


@dataclass(frozen=True)
class Exploration:
    """What was found in one scenario. `seconds` of CPU; `edges`: the moves of the lifecycle's table that were made."""

    scenario: str
    states: int
    transitions: int
    seconds: float
    violation: Violation | None
    edges: frozenset[tuple[State, Event]] = field(repr=False)


def explore(model: Model, *, only: str = "") -> Exploration:
    """Explore a scenario under rules, completely or up to the first violation. `only`: ask for one promise alone."""
    began = time.process_time()
    search = _Search(model, only)
    violation = search.run()
    return Exploration(
        scenario=model.scenario.name,
        states=len(search.worlds),
        transitions=search.transitions,
        seconds=time.process_time() - began,
        violation=violation,
        edges=frozenset(search.edges),
    )


class _Search:
    """The graph as far as it is known. `reached_from`: by which worlds, in one move of the system itself."""

    def __init__(self, model: Model, only: str) -> None:
        self.model = model
        self.promises = Promises(model, only)
        self.worlds: list[World] = []
        self.numbers: dict[World, int] = {}
        self.parents: list[int] = []
        self.reached_from: list[list[int]] = []
        self.edges: set[tuple[State, Event]] = set()
        self.transitions = 0

    def run(self) -> Violation | None:
        """Explore until something breaks or nothing is new; then ask what can come to rest."""
        self._add(canonical(self.model.scenario.start), -1)
        for number, world in enumerate(self.worlds):  # the list grows meanwhile: that is the queue
            for step in moves(self.model, world):
                broken = self._follow(number, world, step)
                if broken:
                    return Violation(broken, self._trace(number, step))
        return self._restless()

    def _add(self, world: World, parent: int) -> int:
        number = self.numbers[world] = len(self.worlds)
        self.worlds.append(world)
        self.parents.append(parent)
        self.reached_from.append([])
        return number

    def _follow(self, number: int, world: World, step: Step) -> str:
        """Make one move; the name of the invariant it breaks, or an empty text."""
        self.transitions += 1
        after = canonical(step.world)
        target = self.numbers.get(after)
        new = target is None
        if target is None:
            target = self._add(after, number)
        if step.system:
            self.reached_from[target].append(number)
        if step.event is not None:
            self.edges.add((world.row.state, step.event))
        return self.promises.broken(world, step, after if new else None)

    def _restless(self) -> Violation | None:
        """A world from which the system alone can never reach a quiescent one."""
        rests = [quiescent(self.model, world) for world in self.worlds]
        frontier = [number for number, rest in enumerate(rests) if rest]
        while frontier:
            for number in self.reached_from[frontier.pop()]:
                if not rests[number]:
                    rests[number] = True
                    frontier.append(number)
        if all(rests) or not self.promises.asks(COMES_TO_REST):
            return None
        return Violation(COMES_TO_REST, self._trace(rests.index(False)))

    def _trace(self, number: int, last: Step | None = None) -> tuple[str, ...]:
        """The moves from the start to a world and one further, its workers called the same all along."""
        lines, mirrored = [], False
        for here, there in pairwise(self._path(number)):
            step = self._step(here, there)
            lines.append(_line(step, mirrored=mirrored))
            mirrored ^= swapped(renamed(step.world))
        return (*lines, *([_line(last, mirrored=mirrored)] if last else []))

    def _path(self, number: int) -> list[int]:
        path = [number]
        while self.parents[path[-1]] >= 0:
            path.append(self.parents[path[-1]])
        return path[::-1]

    def _step(self, here: int, there: int) -> Step:
        after = self.worlds[there]
        return next(step for step in moves(self.model, self.worlds[here]) if canonical(step.world) == after)


def _line(step: Step, *, mirrored: bool) -> str:
    actor, job = step.actor, step.world.job
    if mirrored and actor in NAMES:
        actor = NAMES[1 - NAMES.index(actor)]
    note = f" ({step.note})" if step.note else ""
    return f"{actor} {step.verb}{note} → {'no row' if job is None else job.state.value}"

"""One representative for all worlds that behave alike: ids renamed, workers and messages in order. No moves."""

from __future__ import annotations

from .machine import DEAD, NOTHING, Attempt, Job, Message, Phase, Relay, Report, Worker, World

_FIXED = {0: 0, DEAD: DEAD, NOTHING: NOTHING}
_ASKS_FOR_ITS_ATTEMPT = (Phase.UNKNOWN, Phase.TELL)


def canonical(world: World) -> World:
    """One representative of all worlds that differ in the names of ids, workers and the order of messages."""
    world = renamed(world)
    workers = world.workers[::-1] if swapped(world) else world.workers
    messages, relays = tuple(sorted(world.messages)), tuple(sorted(world.relays))
    return world._replace(workers=workers, messages=messages, relays=relays)


def swapped(world: World) -> bool:
    """Whether `canonical` exchanges the two workers (traces must follow them)."""
    return world.workers[1] < world.workers[0]


def renamed(world: World) -> World:
    """The same world with small numbers for ids; what no row holds any more is DEAD."""
    attempts = _remembered(world)
    names = _Names(world, attempts)
    return world._replace(
        job=world.job and names.job(world.job),
        attempts=tuple([names.attempt(attempt) for attempt in attempts]),
        workers=tuple([names.worker(worker) for worker in world.workers]),
        messages=tuple([names.message(message) for message in world.messages]),
        reports=tuple([names.report(report) for report in world.reports]),
        relays=tuple([names.relay(relay) for relay in world.relays]),
    )


def _remembered(world: World) -> tuple[Attempt, ...]:
    """The attempts whose rows can still matter: running, or asked about by their token."""
    if all(not attempt.outcome for attempt in world.attempts):
        return world.attempts
    asked = {worker.token for worker in world.workers if worker.phase in _ASKS_FOR_ITS_ATTEMPT}
    asked.update(report.token for report in world.reports)
    return tuple(attempt for attempt in world.attempts if not attempt.outcome or attempt.token in asked)


class _Names:
    """The new names of all ids: what rows hold is numbered, everything else is DEAD.

    Values that keep their names are returned as they are: most do, and copying them costs half the exploration.
    """

    def __init__(self, world: World, attempts: tuple[Attempt, ...]) -> None:
        self._tickets, self._tokens = dict(_FIXED), dict(_FIXED)
        if world.job is not None:
            self._number(world.job.ticket, world.job.token)
        for attempt in attempts:
            self._number(attempt.ticket, attempt.token)
        for worker in world.workers:
            self._number(worker.next, 0)

    def _number(self, ticket: int, token: int) -> None:
        self._tickets.setdefault(ticket, len(self._tickets) - len(_FIXED) + 1)
        self._tokens.setdefault(token, len(self._tokens) - len(_FIXED) + 1)

    def _both(self, ticket: int, token: int) -> tuple[int, int]:
        return self._tickets.get(ticket, DEAD), self._tokens.get(token, DEAD)

    def job(self, job: Job) -> Job:
        """The row, with the new names."""
        ticket, token = self._both(job.ticket, job.token)
        if (ticket, token) == (job.ticket, job.token):
            return job
        return job._replace(ticket=ticket, token=token)

    def attempt(self, attempt: Attempt) -> Attempt:
        """An attempt, with the new names."""
        ticket, token = self._both(attempt.ticket, attempt.token)
        if (ticket, token) == (attempt.ticket, attempt.token):
            return attempt
        return attempt._replace(ticket=ticket, token=token)

    def worker(self, worker: Worker) -> Worker:
        """A worker, with the message in its hands, with the new names."""
        if worker.phase is Phase.IDLE:
            return worker
        ticket, token = self._both(worker.ticket, worker.token)
        message, later = self.message(worker.message), self._tickets[worker.next]
        if (ticket, token, later) == (worker.ticket, worker.token, worker.next) and message is worker.message:
            return worker
        return worker._replace(message=message, ticket=ticket, token=token, next=later)

    def message(self, message: Message) -> Message:
        """A message, with the new names."""
        ticket = self._tickets.get(message.ticket, DEAD)
        return message if ticket == message.ticket else message._replace(ticket=ticket)

    def report(self, report: Report) -> Report:
        """A report, with the new names."""
        ticket, token = self._both(report.ticket, report.token)
        return report._replace(ticket=ticket, token=token)

    def relay(self, relay: Relay) -> Relay:
        """A relay, with the new names."""
        return relay._replace(ticket=self._tickets.get(relay.ticket, DEAD))

"""The threads of a worker's main process: heartbeats, losses, relay, sweeps. They call the service, decide nothing.

OS threads of the main process, since a hub timer dies with the first broker reconnect (5.4-5.6) and a thread of
a child stands still while its body holds the GIL. Under gevent they are green, but the one that renews leases.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from queue import Empty
from typing import Any
from uuid import uuid4

from celery import bootsteps, signals
from celery.worker import state
from sqlalchemy.exc import DBAPIError

from . import lasting
from .errors import SuperviseError
from .events import events_of
from .links import keep_from_ending
from .pools import Ticking, check_pool, is_green, keep_what_runs
from .publisher import RUN
from .reports import died, flush_told, leaving
from .request import SupervisedRequest
from .revision import check
from .revoking import cancel_heard
from .runtime import Runtime, count_worker, known_tasks, runtime_of
from .stopping import when_told_to_stop
from .store.leases import HEARTBEAT, RENEW_SETTLING, ask_hand_over
from .store.publishing import RESERVED
from .sweeps import EXPIRY, REAPING, REMINDING, SHELVING, STALLING, Own
from .terminating import terminate_due
from .versions import take_up

logger = events_of(__name__)

TICK = 0.1  # seconds between two looks at what children have reported
DEAD = 0.5  # seconds between two looks at whether children still run
LAST_WORDS = 5.0  # seconds that a stopping worker gives its thread to write what it still knows


@dataclass
class Duty:
    """Something to do again and again: what, how often (seconds), when next (monotonic)."""

    name: str
    act: Callable[[], object]
    every: float
    due: float = 0.0
    failing: bool = False

    def run(self, now: float) -> None:
        """Do it if it is time. A failure is told once, and the next time is as good as this one: rows are truth."""
        if now < self.due:
            return
        self.due = now + self.every
        try:
            self.act()
        except BaseException as error:  # the shop's code may exit: its thread would end, and say nothing
            level = logging.DEBUG if self.failing else logging.WARNING
            logger.log(
                level,
                "supervise.duty_failed",
                exc_info=not isinstance(error, SuperviseError),
                extra={"duty": self.name, "why": str(error)},
            )
            self.failing = True
        else:
            self.failing = False


class Keeper:
    """Keeps the leases of this worker's attempts, and the promises that no message can keep.

    In three threads. What keeps leases must not wait for the rounds, which may be long; and neither for a result
    backend that hangs, to which outcomes are told. In a green pool leases have an OS thread and an engine of their
    own: what gevent has patched belongs to the thread that made it.
    """

    def __init__(self, runtime: Runtime) -> None:
        settings = runtime.settings
        self._runtime = runtime
        self._stopping = threading.Event()
        self._threads: list[threading.Thread] = []
        self._leaving = False
        self._door = runtime.door
        heartbeat = Duty("heartbeat", self.beat, settings.heartbeat_seconds)
        self._apart: Ticking | None = None
        if runtime.green:
            self._door = runtime.door.over(runtime.engines.another())
            self._apart = Ticking(lambda: _run([heartbeat]), every=TICK, name="celery-supervise_beat")
        self._pulse = [
            *([] if runtime.green else [heartbeat]),
            Duty("told", lambda: flush_told(runtime), settings.relay_seconds / 4),
            Duty("terminate", lambda: terminate_due(runtime), settings.relay_seconds),
            Duty("dead", self.bury, DEAD),
            Duty("leave", self.leave, settings.relay_seconds),
            # before the next sweep counts, even where that is a little early
            Duty("in hand", lambda: tell_in_hand(runtime), settings.sweep_seconds / 2),
        ]
        self._rounds = [
            Duty("relay", runtime.relay.publish_once, settings.relay_seconds / (4 if runtime.door.counted else 1)),
            Duty("revoke", lambda: cancel_heard(runtime), settings.relay_seconds / 4),
            Duty("expire", lambda: runtime.sweeper.run_once(EXPIRY), settings.sweep_seconds),
            Duty("reap", self.reap, settings.sweep_seconds),
            Duty("stall", lambda: runtime.sweeper.run_once(STALLING), settings.sweep_seconds),
            Duty("remind", lambda: runtime.sweeper.run_once(REMINDING), settings.sweep_seconds),
            Duty("versions", self.take_up, settings.sweep_seconds),
            Duty("shelve", lambda: runtime.sweeper.run_once(SHELVING), settings.sweep_seconds),
            Duty("lost", lambda: runtime.sweeper.find_lost(runtime.relay), settings.sweep_seconds),
        ]
        if (kept := settings.retention) is not None:
            self._rounds.append(Duty("prune", lambda: runtime.sweeper.prune(kept), settings.sweep_seconds))
        self._telling = [
            Duty("settle", runtime.relay.settle_once, settings.relay_seconds),
            Duty(
                "renew",
                lambda: runtime.sweeper.renew(lambda: lasting.renew(runtime), lasting.period(runtime.app)),
                settings.sweep_seconds,
            ),
        ]

    # --- the threads -------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the threads. After the pool's first fork: a child must not inherit them half."""
        for loop in (self._keep, self._go_round, self._tell):
            thread = threading.Thread(target=loop, name=f"celery-supervise{loop.__name__}", daemon=True)
            thread.start()
            self._threads.append(thread)
        if self._apart is not None:
            self._apart.start()

    def stop(self) -> None:
        """Write what is still to be written, then stop. Called when the pool has ended."""
        self._stopping.set()
        for thread in self._threads:
            thread.join(LAST_WORDS)
        if self._apart is not None:
            self._apart.stop()

    def _keep(self) -> None:
        while not self._stopping.is_set():
            self.listen(TICK)
            _run(self._pulse)
        self.listen(0)
        Duty("told", lambda: flush_told(self._runtime), 0).run(time.monotonic())

    def _go_round(self) -> None:
        while not self._stopping.wait(TICK):
            _run(self._rounds)

    def _tell(self) -> None:
        while not self._stopping.wait(TICK):
            _run(self._telling)

    def listen(self, seconds: float) -> None:
        """Act on what the main loop has learned of its children; wait so long for the first report."""
        reports = self._runtime.reports
        with suppress(Empty):
            self._act(reports.get(timeout=seconds) if seconds else reports.get_nowait())
            while True:
                self._act(reports.get_nowait())

    def _act(self, report: Callable[[], object]) -> None:
        try:
            report()
        except SuperviseError as error:  # a report that could not be written now: the lease will tell the same
            logger.warning("supervise.report_failed", extra={"why": str(error)})
        except BaseException:  # the thread must not end with the shop's code, which may exit
            logger.exception("supervise.report_failed")

    # --- duties ------------------------------------------------------------------------------------------

    def beat(self) -> None:
        """Renew the leases of what this worker runs, and of the telling of what it has just ended."""
        active = active_jobs()
        if not active:
            return
        door, incarnation = self._door, self._runtime.incarnation
        renewed = door.all(HEARTBEAT, incarnation=incarnation, job_ids=active)
        if len(renewed) < len(active):
            door.all(RENEW_SETTLING, incarnation=incarnation, job_ids=active)

    def reap(self) -> None:
        """End the leases of others: what this worker has in hand is not lost, however long it stood still."""
        self._runtime.sweeper.run_once(REAPING, own=own(self._runtime))

    def bury(self) -> None:
        """The attempts of children that are gone are lost."""
        for request in _every(state.active_requests):
            if _is_run(request) and request.process is not None and not is_alive(request.process):
                died(self._runtime, request)

    def take_up(self) -> None:
        """Let jobs go on that were parked since no code could run them, and that this worker can."""
        runtime = self._runtime
        for change in take_up(runtime.door, known_tasks(runtime.app)):
            if change.ticket_id is not None:
                runtime.supervisor.publish_ticket(change.job_id, change.ticket_id)

    def hand_over(self) -> None:
        """The worker is shutting down: running bodies leave at their next checkpoint."""
        self._leaving = True
        leaving(self._runtime)

    def leave(self) -> None:
        """Also what it had fetched before it was told to stop, and has begun since."""
        if self._leaving and active_jobs():
            ask_hand_over(self._runtime.door, self._runtime.incarnation)


def _gone(sender: Any, **_: Any) -> None:
    count_worker(sender.app, -1)


def _run(duties: Sequence[Duty]) -> None:
    now = time.monotonic()
    for duty in duties:
        duty.run(now)


def own(runtime: Runtime) -> Own:
    """What this process runs, if it is a worker's main process: that no sweep of its takes."""
    return Own(runtime.incarnation, active_jobs)


def active_jobs() -> list[str]:
    """The jobs whose messages this worker's pool has in hand, in processes that live."""
    return [request.id for request in _every(state.active_requests) if _runs(request)]


def _every(requests: Iterable[Any]) -> tuple[Any, ...]:
    for _ in range(10):
        try:
            return tuple(requests)
        except RuntimeError:  # the main loop changed the set while it was copied
            continue
    return ()


def tell_in_hand(runtime: Runtime) -> None:
    """Say which messages this worker has fetched and not begun: if it dies nobody says so, and they are lost (24).

    Redis would give them back only after its visibility timeout.
    """
    tickets = [str(request.ticket_id) for request in _every(state.reserved_requests) if _is_run(request)]
    if tickets:
        runtime.door.all(RESERVED, ids=tickets)


def _runs(request: Any) -> bool:
    return _is_run(request) and (request.process is None or is_alive(request.process))


def _is_run(request: Any) -> bool:
    return isinstance(request, SupervisedRequest) and request.supervise_header.get("kind") == RUN


def is_alive(pid: int) -> bool:
    """Whether a process runs. While a worker has no broker it may not hear of a child's end (5.4-5.7)."""
    try:
        os.kill(pid, 0)
        with suppress(OSError):  # where there is no /proc
            return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0] != "Z"
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def check_schema(runtime: Runtime) -> None:
    """Refuse to start on a schema that this library cannot use. A database that is away just now is waited for.

    After the pool's first fork: a connection of the main process must not be inherited. Raises `NotMigrated`.
    """
    try:
        with runtime.engines().connect() as connection:
            check(connection, runtime.settings.schema)
    except DBAPIError as error:
        logger.warning("supervise.database_away", extra={"why": str(error.orig)})


class KeeperStep(bootsteps.StartStopStep):
    """Starts the keeper after the pool. It outlives the pool's end, so that leases hold while bodies finish."""

    requires = ("celery.worker.components:Pool",)

    def __init__(self, worker: Any, **kwargs: Any) -> None:
        """Before the pool forks: this main process gets a name of its own."""
        super().__init__(worker, **kwargs)
        runtime = runtime_of(worker.app)
        runtime.incarnation = uuid4()
        runtime.green = is_green(worker.pool_cls)
        self.enabled = runtime.settings.worker_thread
        self._keeper = Keeper(runtime)
        count_worker(worker.app, 1)
        signals.worker_shutdown.connect(_gone, sender=worker)

    def start(self, worker: Any) -> None:
        """Start the threads and listen for the worker's end."""
        keeper, runtime = self._keeper, runtime_of(worker.app)
        check_pool(worker.pool_cls, runtime.engines())
        keep_what_runs(worker.pool)
        keep_from_ending(worker.app.connection_for_read().transport)
        check_schema(runtime)
        keeper.start()
        forget = when_told_to_stop(worker, keeper.hand_over)

        def left(**_: Any) -> None:
            forget()
            keeper.stop()

        signals.worker_shutdown.connect(left, sender=worker, weak=False)

    def stop(self, _worker: Any) -> None:
        """Whatever stops the worker, its bodies are to leave. The pool runs on: the rest is for `worker_shutdown`."""
        self._keeper.hand_over()

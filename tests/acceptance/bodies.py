"""The tasks of the acceptance tests. Each real side effect is a line in the shop's file."""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import socket
import sys
import time
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from celery import Celery, Task

from celery_supervise import Options, SupervisedTask

if TYPE_CHECKING:
    from tests.acceptance.project import Place


class Broken(Exception):
    """What a task of this shop raises."""


def define(app: Celery, place: Place) -> None:
    """Register the tasks."""
    _simple(app, place)
    _durable(app, place)
    _asking(app, place)
    _deadly(app, place)
    _timed(app, place)
    _limited(app, place)
    _hooked(app, place)
    _leaving(app, place)
    _dying(app, place)
    _calculating(app, place)
    _plain(app, place)


def _task(app: Celery, **options: Any) -> Any:
    return app.task(base=SupervisedTask, bind=True, shared=False, **options)


def _simple(app: Celery, place: Place) -> None:
    def add(_self: Task, x: int, y: int) -> int:
        place.effect(f"add {x} {y}")
        return x + y

    def fail(_self: Task, text: str) -> None:
        place.effect("fail")
        raise Broken(text)

    def stand(_self: Task, gate: str) -> str:
        place.stand_at(gate)
        return gate

    def deaf(_self: Task) -> None:
        """Leaves for nothing that can be caught."""
        place.effect(f"deaf {os.getpid()}")
        until = time.monotonic() + 60
        while time.monotonic() < until:
            try:
                time.sleep(0.01)
            except BaseException:  # noqa: S112  # as badly as it gets
                continue
        place.effect("deaf to the end")

    for function in (add, fail, stand, deaf):
        _task(app)(function)


def _durable(app: Celery, place: Place) -> None:  # noqa: C901, PLR0915  # a list of bodies
    def walk(self: SupervisedTask, names: list[str], gates: list[str]) -> list[str]:
        """One step a name; at a gate after the step of that name."""
        done = []
        for name in names:
            done.append(self.step(name, _walked, place, name))
            if name in gates:
                place.stand_at(name)
        return done

    def loop(self: SupervisedTask, count: int, gate: int) -> int:
        """A durable loop that stands at a gate inside one of its items."""
        items = self.each("items", range(count), key=lambda item: item, total=0)
        for item in items:
            place.effect(f"item {item}")
            if item == gate:
                place.stand_at(f"item {item}")
            items.total += item
        return int(items.total)

    def slow(self: SupervisedTask, steps: int, seconds: float) -> int:
        for number in range(steps):
            self.step(f"step {number}", _slept, place, number, seconds)
        return steps

    def thawed(self: SupervisedTask) -> str:
        """Stands at a gate of its worker's; then does all that a stale attempt might try."""
        self.step("one", place.effect, "one")
        place.stand_at(self.request.hostname)
        for call in (
            lambda: self.step("two", _walked, place, "two"),
            lambda: self.ask("more", "More?", choices=["yes"]),
        ):
            try:
                call()
            except Exception:
                place.effect("swallowed")
            except BaseException as ended:
                place.effect(f"{self.request.hostname} {type(ended).__name__}")
        return str(self.request.hostname)

    for function in (walk, loop, slow, thawed):
        _task(app)(function)


def _walked(place: Place, name: str) -> str:
    place.effect(name)
    return name.upper()


def _slept(place: Place, number: int, seconds: float) -> None:
    place.effect(f"step {number}")
    time.sleep(seconds)


def _asking(app: Celery, place: Place) -> None:  # noqa: C901  # a list of bodies
    def approve(self: SupervisedTask, amount: int) -> str:
        """Load, ask, pay: each once."""
        self.step("load", place.effect, f"load {amount}")
        answer = self.ask("approve", f"Pay {amount}?", choices=["yes", "no"])
        if answer == "yes":
            self.step("pay", place.effect, f"pay {amount}")
        return answer

    def hurried(self: SupervisedTask, number: int) -> int:
        """Asks at once, and gives back the answer."""
        answer: int = self.ask("number", "Which number?", schema={"type": "integer"}, show={"number": number})
        place.effect(f"answered {number}")
        return answer

    def impatient(self: SupervisedTask, seconds: float) -> str:
        return self.ask("approve", "Quick?", choices=["yes", "no"], ttl=timedelta(seconds=seconds))

    def interview(self: SupervisedTask, count: int) -> list[int]:
        """Effect and question, in turn."""
        answers = []
        for number in range(count):
            self.step(f"work {number}", place.effect, f"work {number}")
            answers.append(self.ask(f"ask {number}", "How many?", schema={"type": "integer"}))
        return answers

    def resumes(self: SupervisedTask, gate: str) -> str:
        """Asks, and stands at a gate after the answer."""
        answer = self.ask("go", "Go on?", choices=["yes"])
        place.stand_at(gate)
        return answer

    for function in (hurried, impatient, interview, resumes):
        _task(app)(function)
    _task(app, supervise=Options(lost_attempts=5))(approve)


def _deadly(app: Celery, place: Place) -> None:
    def suicidal(self: SupervisedTask, lives: int) -> str:
        """Dies inside its second step, until it has died so often."""
        self.step("first", place.effect, "first")
        self.step("second", _die_until, place, lives)
        return "alive"

    def leaving(self: SupervisedTask) -> str:
        """Ends its process as C code might, once."""
        place.effect("leaving")
        if self.request.id and place.effects().count("leaving") == 1:
            os._exit(0)
        return "alive"

    for function in (suicidal, leaving):
        _task(app)(function)


def _die_until(place: Place, lives: int) -> None:
    place.effect("second")
    if place.effects().count("second") <= lives:
        os.kill(os.getpid(), signal.SIGKILL)


def _timed(app: Celery, place: Place) -> None:
    def stuck(self: SupervisedTask) -> None:
        self.step("first", place.effect, "first")
        place.effect("stuck")
        time.sleep(60)

    def retrying(self: SupervisedTask, fails: int, countdown: float) -> int:
        self.step("first", place.effect, "first")
        place.effect("try")
        if self.request.retries < fails:
            raise self.retry(countdown=countdown, exc=Broken("not yet"))
        return int(self.request.retries)

    def stubborn(self: SupervisedTask) -> None:
        """Turns what ends it into an ordinary error."""
        place.stand_at("stubborn")
        try:
            self.step("after", place.effect, "after")
        except BaseException as ended:
            raise ValueError("something went wrong") from ended

    def brief(self: SupervisedTask) -> None:
        """Has a second to live."""
        place.stand_at("brief")
        self.step("late", place.effect, "late")

    _task(app, time_limit=2)(stuck)
    _task(app, name="tests.acceptance.bodies.soft", soft_time_limit=1)(stuck)
    _task(app, max_retries=5)(retrying)
    _task(app, autoretry_for=(ValueError,), default_retry_delay=0, max_retries=3)(stubborn)
    _task(app, supervise=Options(deadline=timedelta(seconds=1)))(brief)


def _limited(app: Celery, place: Place) -> None:
    def patient(self: SupervisedTask) -> str:
        """Calls a dependency that does not answer at first."""
        return self.options(timeout=timedelta(seconds=1)).step("call", _called, place)

    _task(app, autoretry_for=(TimeoutError,), default_retry_delay=0, max_retries=3)(patient)


def _called(place: Place) -> str:
    """The first time nobody answers: it waits for a byte that never comes."""
    place.effect("call")
    if place.effects().count("call") == 1:
        here, there = socket.socketpair()
        with here, there:
            here.recv(1)
    return "answered"


def _hooked(app: Celery, place: Place) -> None:
    class Lingering(SupervisedTask):
        """With a hook that hangs, once."""

        abstract = True

        def on_success(self, *_: Any) -> None:
            place.effect("lingering")
            if place.effects().count("lingering") == 1:
                time.sleep(60)

    class Parting(SupervisedTask):
        """With a hook that waits, between the job's end and the acknowledgement of its message."""

        abstract = True

        def on_success(self, *_: Any) -> None:
            place.stand_at("parting")

    def lingers(_self: SupervisedTask) -> str:
        return "done"

    def parts(_self: SupervisedTask) -> str:
        place.effect("parts")
        return "done"

    app.task(base=Parting, bind=True, shared=False)(parts)

    app.task(base=Lingering, bind=True, shared=False, time_limit=2)(lingers)


def _leaving(app: Celery, place: Place) -> None:
    def exits(_self: SupervisedTask) -> None:
        """As a script would."""
        place.effect("exits")
        sys.exit(3)

    def unmoved(self: SupervisedTask, gate: str) -> str:
        """Leaves for nothing that can be caught, until the gate opens."""
        self.step("one", place.effect, "one")
        while not place.is_open(gate):
            with suppress(BaseException):
                place.stand_at(gate)
        return self.step("two", _walked, place, "two")

    for function in (exits, unmoved):
        _task(app)(function)


def _dying(app: Celery, place: Place) -> None:
    def crashes(_self: SupervisedTask) -> str:
        """Reads where there is nothing, once, as a broken C extension does."""
        place.effect("crashes")
        if place.effects().count("crashes") == 1:
            ctypes.string_at(0)
        return "alive"

    def greedy(self: SupervisedTask) -> None:
        """Wants more memory than its process may have."""
        self.step("first", place.effect, "first")
        before = resource.getrlimit(resource.RLIMIT_AS)
        resource.setrlimit(resource.RLIMIT_AS, (1 << 20, before[1]))
        try:
            bytearray(1 << 30)
        finally:
            resource.setrlimit(resource.RLIMIT_AS, before)

    def timely(self: SupervisedTask, gate: str) -> str:
        """Has two seconds, and comes to its end in time."""
        place.stand_at(gate)
        return gate

    for function in (crashes, greedy):
        _task(app)(function)
    _task(app, soft_time_limit=2)(timely)
    _task(app, name="tests.acceptance.bodies.doomed", time_limit=2)(timely)


def _calculating(app: Celery, place: Place) -> None:
    def spin(self: SupervisedTask, gate: str) -> str:
        """Lets no other green thread of its process run."""
        return self.step("spin", place.spin_at, gate)

    def clench(self: SupervisedTask, gate: str) -> str:
        """Lets no other thread of its process run: C code that holds the interpreter's lock."""
        return self.step("clench", place.clench_at, gate)

    for function in (spin, clench):
        _task(app)(function)


def _plain(app: Celery, place: Place) -> None:
    def record(value: Any) -> Any:
        """What other tasks link to."""
        place.effect(f"record {value}")
        return value

    def alarm(job_id: str) -> None:
        place.effect("alarm")

    def total(values: list[int]) -> int:
        place.effect(f"total {sum(values)}")
        return sum(values)

    for function in (record, alarm, total):
        app.task(shared=False)(function)

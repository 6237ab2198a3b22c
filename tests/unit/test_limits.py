"""Options of a step: a dependency that hangs is left in time; a remembered output is checked before it is used."""

from __future__ import annotations

import pickle
import signal
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest

from celery_supervise import StepTimedOut
from celery_supervise.body import Body
from celery_supervise.errors import AttemptEnded, InvalidInput, VerificationFailed
from celery_supervise.journal import Journal, MemoryJournal
from celery_supervise.limits import limited
from celery_supervise.model import NodeKind, Stored
from celery_supervise.testing import rehearse

SOON = timedelta(seconds=0.05)
LONG = 30.0


def a_body(journal: Journal | None = None) -> Body:
    """A body of one attempt."""
    return Body(journal or MemoryJournal(), job_id="job")


def hang() -> str:
    """A dependency that does not answer."""
    time.sleep(LONG)
    return "answered"


def quick() -> str:
    """One that does."""
    return "answered"


def timed(call: Callable[[], Any]) -> float:
    """The seconds until it timed out."""
    began = time.monotonic()
    with pytest.raises(StepTimedOut):
        call()
    return time.monotonic() - began


@pytest.fixture(autouse=True)
def _signals() -> Any:
    """Each test leaves handler and alarm as it found them; the test runner's own alarm goes on."""
    handler, (left, every) = signal.getsignal(signal.SIGALRM), signal.getitimer(signal.ITIMER_REAL)
    yield
    assert signal.getsignal(signal.SIGALRM) is handler
    now_left, now_every = signal.getitimer(signal.ITIMER_REAL)
    assert (now_left > 0, now_every) == (left > 0, every)
    assert now_left <= left


# --- timeout ---------------------------------------------------------------------------------------------


def test_a_dependency_that_hangs_is_left() -> None:
    """The call is interrupted; nothing is remembered, the attempt lives, and the name is free again."""
    journal = MemoryJournal()
    body = a_body(journal)
    assert timed(lambda: body.options(timeout=SOON).step("ask", hang)) < LONG / 3
    assert (body.dead, dict(journal.nodes())) == (None, {})
    assert body.step("ask", quick) == "answered"


def test_it_is_a_timeout_error() -> None:
    """Celery's `autoretry_for=(TimeoutError,)` knows it; it names the step and its time, also where it is sent on."""
    with pytest.raises(TimeoutError) as timeout:
        a_body().options(timeout=SOON).step("ask", hang)
    error = timeout.value
    assert isinstance(error, StepTimedOut)
    assert (error.name, error.timeout, str(error)) == ("ask", SOON, "step 'ask' took longer than 0.05 s")
    again = pickle.loads(pickle.dumps(error))  # noqa: S301 - our own
    assert (type(again), again.args, again.name) == (StepTimedOut, error.args, "ask")
    assert StepTimedOut(*error.args).args == error.args


def test_a_call_in_time_is_as_any_other() -> None:
    """It is remembered, with its arguments and result."""
    journal = MemoryJournal()
    for _ in range(2):
        assert a_body(journal).options(timeout=timedelta(seconds=LONG)).step("add", sum, [1, 2], start=3) == 6
    assert list(journal.nodes()) == ["add"]


def test_what_is_remembered_is_not_called() -> None:
    """A step that is decided returns what is remembered, whatever its function would do."""
    journal = MemoryJournal()
    a_body(journal).step("ask", quick)
    assert a_body(journal).options(timeout=SOON).step("ask", hang) == "answered"


def test_who_swallows_it_wins_nothing() -> None:
    """A function that catches everything is interrupted again, and its result is not remembered."""
    times: list[float] = []

    def stubborn() -> str:
        while len(times) < 3:
            try:
                time.sleep(LONG)
            except Exception:  # noqa: BLE001 - what is shown
                times.append(time.monotonic())
        return "answered"

    journal = MemoryJournal()
    assert timed(lambda: a_body(journal).options(timeout=SOON).step("ask", stubborn)) < LONG / 3
    assert (len(times), dict(journal.nodes())) == (3, {})


def test_the_bodys_own_error_is_its_own() -> None:
    """What the function raises is not hidden behind the time that it took."""

    def breaks() -> None:
        raise ConnectionError("refused")

    with pytest.raises(ConnectionError):
        a_body().options(timeout=SOON).step("ask", breaks)


def test_in_another_thread_it_is_judged_at_its_end() -> None:
    """Where nothing can interrupt it (the pools threads and gevent), a late result is not remembered."""
    journal = MemoryJournal()

    def late() -> None:
        time.sleep(2 * SOON.total_seconds())

    def attempt() -> Any:
        with pytest.raises(StepTimedOut):
            a_body(journal).options(timeout=SOON).step("ask", late)
        return a_body(journal).options(timeout=timedelta(seconds=LONG)).step("ask", quick)

    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(attempt).result(LONG) == "answered"


class Slow(MemoryJournal):
    """A journal whose commits take longer than a step may."""

    def save(self, name: str, kind: NodeKind, value: Stored | None) -> None:
        """Take the time, then save."""
        time.sleep(3 * SOON.total_seconds())
        super().save(name, kind, value)


def test_a_commit_is_not_interrupted() -> None:
    """A step inside a step commits whole; only then is the outer one left, and the attempt lives."""
    journal = Slow()
    body = a_body(journal)

    def outer() -> str:
        body.step("inner", quick)
        return hang()

    assert timed(lambda: body.options(timeout=SOON).step("outer", outer)) < LONG / 3
    assert (list(journal.nodes()), body.dead) == (["inner"], None)


@pytest.mark.parametrize(("inner", "outer", "named"), [(0.05, 10.0, "inner"), (10.0, 0.05, "outer")])
def test_limits_nest(inner: float, outer: float, named: str) -> None:
    """Whichever is over first is told by its name; the other one stands where it stood."""
    body = a_body()

    def call() -> str:
        return body.options(timeout=timedelta(seconds=inner)).step("inner", hang)

    with pytest.raises(StepTimedOut) as timeout:
        body.options(timeout=timedelta(seconds=outer)).step("outer", call)
    assert timeout.value.name == named


def test_an_alarm_of_the_bodys_own_still_rings() -> None:
    """Whoever has set an alarm before gets it at its time, inside of the step or after it."""
    rung: list[float] = []
    before = signal.getsignal(signal.SIGALRM), signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, lambda *_: rung.append(time.monotonic()))
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        with limited("s", timedelta(seconds=LONG), busy=lambda: False):
            time.sleep(0.15)
        assert len(rung) == 1
        signal.setitimer(signal.ITIMER_REAL, 0.1)
        with limited("s", timedelta(seconds=LONG), busy=lambda: False):
            pass
        time.sleep(0.2)
        assert len(rung) == 2
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before[0])
        signal.setitimer(signal.ITIMER_REAL, *before[1])


# --- verify ----------------------------------------------------------------------------------------------


def test_a_remembered_output_is_checked_before_it_is_used() -> None:
    """Not the first time, when it is new; each time after that, with the value as the body gets it."""
    journal, seen = MemoryJournal(), []

    def check(value: str) -> bool:
        seen.append(value)
        return True

    for _ in range(3):
        assert a_body(journal).options(verify=check).step("file", quick) == "answered"
    assert seen == ["answered", "answered"]


@pytest.mark.parametrize("verdict", [False, None, 0, ""])
def test_an_output_that_is_gone_fails_the_job(verdict: object) -> None:
    """Nothing true: the attempt is over, whoever swallows it; the output is not made again behind anybody's back."""
    journal = MemoryJournal()
    a_body(journal).step("file", quick)
    body = a_body(journal)
    with pytest.raises(VerificationFailed) as failed:
        body.options(verify=lambda _: verdict).step("file", quick)
    assert (failed.value.name, body.dead) == ("file", failed.value)
    with pytest.raises(AttemptEnded):
        body.step("other", quick)


def test_a_check_that_cannot_tell_raises_its_own_error() -> None:
    """A store that is away is no proof that the output is: the attempt lives, Celery may retry."""
    journal = MemoryJournal()
    a_body(journal).step("file", quick)
    body = a_body(journal)

    def away(_: object) -> bool:
        raise ConnectionError("refused")

    with pytest.raises(ConnectionError):
        body.options(verify=away).step("file", quick)
    assert body.dead is None
    assert body.step("file", quick) == "answered"


def test_a_check_that_hangs_is_left() -> None:
    """The time limit is for the check, too."""
    journal = MemoryJournal()
    a_body(journal).step("file", quick)
    assert timed(lambda: a_body(journal).options(timeout=SOON, verify=lambda _: hang()).step("file", quick)) < LONG / 3


def test_a_rehearsal_shows_a_check() -> None:
    """Killed after a step and entered again, the body checks its output: what does not last is found."""
    lasting: list[str] = []

    def body(self: Body) -> str:
        return self.options(verify=lambda path: path in lasting).step("file", quick) + self.step("next", quick)

    with pytest.raises(AssertionError, match="no longer verifies"):
        rehearse(body, crash_everywhere=True)
    lasting.append("answered")
    assert rehearse(body, crash_everywhere=True).crashes == 2


# --- both ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "field"),
    [({"timeout": 30}, "timeout"), ({"timeout": timedelta(0)}, "timeout"), ({"verify": True}, "verify")],
)
def test_what_cannot_be_an_option(given: dict[str, Any], field: str) -> None:
    """Seconds as a number, no time, no function: refused by name, before anything runs."""
    with pytest.raises(InvalidInput) as refused:
        a_body().options(**given)
    assert refused.value.field == field


def test_options_may_be_kept_for_several_steps() -> None:
    """They are a value: named once, used for each call of the same dependency."""
    careful = (body := a_body()).options(timeout=timedelta(seconds=LONG))
    assert [careful.step(f"call {number}", int, number) for number in range(3)] == [0, 1, 2]
    assert body.dead is None


def test_no_thread_is_started() -> None:
    """A time limit costs no thread."""
    before = threading.active_count()
    a_body().options(timeout=timedelta(seconds=LONG)).step("count", lambda: None)
    assert threading.active_count() == before

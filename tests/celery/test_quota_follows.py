"""What Celery calls when a task has ended was accepted with it: no owner's limit refuses it then."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from celery import chain, chord
from celery.canvas import Signature
from celery.result import AsyncResult

from celery_supervise import QuotaExceeded, SupervisedTask
from celery_supervise.errors import DatabaseUnavailable
from celery_supervise.model import Failure
from tests.celery.site import Site, got, working
from tests.tools import wait_for

OpenSite = Callable[..., Site]


class Bakery:
    """An app whose owner `acme` has all the open jobs that it may: one, which is parked."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.seen: list[str] = []
        self.note = self._task(self._note)
        self.broken = self._task(self._broken)
        self.calls = self._task(self._calls)
        self.asks = self._task(self._asks)

        def plain() -> int:
            return 1

        def plainly() -> None:
            self.call(9).apply_async()

        self.plain, self.plainly = site.app.task(shared=False)(plain), site.app.task(shared=False)(plainly)

    def _task(self, body: Callable[..., Any]) -> Any:
        def run(task: SupervisedTask, *args: Any) -> Any:
            return body(task, *args)

        return self.site.app.task(base=SupervisedTask, bind=True, shared=False, name=body.__name__)(run)

    def call(self, number: int) -> Signature[Any]:
        """A call for `acme`."""
        made: Signature[Any] = self.note.si(number).set(supervise={"owner": "acme"})
        return made

    def occupied(self) -> None:
        """From here on `acme` may make no more calls."""
        self.site.parked(self.asks.apply_async(supervise={"owner": "acme"}))
        with pytest.raises(QuotaExceeded):
            self.call(0).apply_async()

    def failed(self, **options: Any) -> AsyncResult[Any]:
        """A call that failed before any worker ran it; Celery has not been told."""
        result: AsyncResult[Any] = self.note.apply_async((0,), **options)
        ticket = self.site.job(result).ticket_id
        assert ticket is not None
        self.site.supervise.fail_waiting(
            result.id, ticket, Failure("Broken", "no"), reason="unrunnable", actor="worker"
        )
        return result

    def ran(self, *numbers: int) -> None:
        """Wait until these calls have run, and see that each did once."""
        wanted = [f"note {number}" for number in numbers]
        wait_for(lambda: {*wanted} <= {*self.seen}, what=f"{wanted}")
        assert sorted(self.seen) == wanted

    def _note(self, _task: Any, number: int) -> int:
        self.seen.append(f"note {number}")
        return number

    def _broken(self, _task: Any) -> None:
        raise ValueError("no")

    def _calls(self, _task: Any) -> None:
        self.call(9).apply_async()

    def _asks(self, task: SupervisedTask) -> str:
        return task.ask("go", "Go on?", choices=["yes"])


@pytest.fixture
def bakery(open_site: OpenSite) -> Bakery:
    """The app, without a worker yet."""
    return Bakery(open_site(supervise_owner_open=1))


def test_what_was_linked_is_not_refused(bakery: Bakery) -> None:
    """Links, a chain's next and a chord's body run, and the task before them is told as it ended."""
    with working(bakery.site):
        bakery.occupied()
        linked = bakery.note.apply_async((1,), link=[bakery.call(2), bakery.call(3)])
        assert got(linked) == 1
        assert got(chain(bakery.note.si(4), bakery.call(5)).apply_async()) == 5
        assert got(chord([bakery.note.si(6), bakery.plain.si()])(bakery.call(7))) == 7
        assert got(bakery.plain.apply_async(link=bakery.call(8))) == 1
        bakery.ran(1, 2, 3, 4, 5, 6, 7, 8)
        bakery.site.settled(linked)
    bakery.site.check()


def test_errbacks_are_not_refused(bakery: Bakery) -> None:
    """Neither by the worker whose task failed, nor by the relay that tells of an end."""
    with working(bakery.site):
        bakery.occupied()
        with pytest.raises(ValueError, match="no"):
            got(bakery.broken.apply_async(link_error=[bakery.call(1), bakery.call(2)]))
        bakery.ran(1, 2)
    late = bakery.failed(link_error=bakery.call(3))
    bakery.site.runtime.relay.settle_once()
    assert bakery.site.job(late).settled_at is not None
    called = [message for message in bakery.site.messages() if message["headers"]["task"] == bakery.note.name]
    assert [message["headers"]["argsrepr"] for message in called][-1] == "(3,)"


def test_an_errback_that_cannot_be_made_now_is_made_later(bakery: Bakery, monkeypatch: pytest.MonkeyPatch) -> None:
    """While the database cannot take it the end is not told, and so is told again: the errback is not lost."""
    late = bakery.failed(link_error=bakery.call(3))
    with monkeypatch.context() as away:
        for name in ("submit", "submit_many"):  # Celery sends errbacks as a group
            away.setattr(bakery.site.supervise, name, _away)
        bakery.site.runtime.relay.settle_once()
    assert bakery.site.job(late).settled_at is None


def _away(*_args: Any, **_options: Any) -> Any:
    raise DatabaseUnavailable("connection refused")


def test_what_a_body_calls_is(bakery: Bakery) -> None:
    """A call by anybody's code counts, also in a worker: in a supervised body and in a plain one."""
    with working(bakery.site):
        bakery.occupied()
        for task in (bakery.calls, bakery.plainly):
            with pytest.raises(Exception, match="'acme' has 1 open job,"):
                got(task.delay())
    assert bakery.seen == []

"""Adoption in two steps, and back: which callers and workers may be old or new at a time, with the effects counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from celery import Celery, _state

from celery_supervise import State, SupervisedTask
from celery_supervise.runtime import known_tasks, memories_of
from celery_supervise.versions import Stranded, preflight
from tests.celery.site import Site, got, working
from tests.jobs import close
from tests.tools import wait_for

OpenSite = Callable[..., Site]
NAME = "shop.pay"
paid: Counter[str] = Counter()


@pytest.fixture(autouse=True)
def _nothing_paid() -> None:
    paid.clear()


def pays(order: str) -> str:
    """The task as it was."""
    paid[order] += 1
    return f"paid {order}"


def asks_and_pays(self: SupervisedTask, order: str) -> str:
    """The task after it has been adopted: what is large is asked for."""
    if order.startswith("large"):
        self.ask("ok", f"Pay {order}?", choices=["yes"])
    return self.step("pay", pays, order)


def supervised(site: Site) -> Any:
    """The task in new code."""
    return site.app.task(base=SupervisedTask, bind=True, shared=False, name=NAME)(asks_and_pays)


@pytest.fixture
def beside() -> Iterator[Callable[[Site], Site]]:
    """Gives old code: an app on the same broker, queue and results, without the library."""
    made: list[Celery] = []

    def old(site: Site) -> Site:
        app = Celery("shop", set_as_current=False)
        given = {name: value for name, value in site.app.conf.changes.items() if not name.startswith("supervise_")}
        app.conf.update(given)
        app.task(shared=False, name=NAME)(pays)
        _finalize_alone(app)
        made.append(app)
        return Site(app, site.broker, site.queue)

    yield old
    for app in made:
        close(app)


def _finalize_alone(app: Celery) -> None:
    """With Celery's own tasks, and none that other modules of these tests have made for every app of the process."""
    celerys = {one for one in _state._on_app_finalizers if one.__module__ == "celery.app.builtins"}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_state, "_on_app_finalizers", celerys)
        app.finalize()


def stranded(site: Site, code: Site) -> list[Stranded]:
    """What `preflight` says of the jobs, run with this code."""
    return list(preflight(site.runtime.door, known_tasks(code.app), list(code.app.tasks), memories_of(site.runtime)))


def test_new_callers_beside_old_workers(open_site: OpenSite, beside: Callable[[Site], Site]) -> None:
    """The first step, `supervise_submit="worker"`: old workers run what new callers send, new ones make jobs of it."""
    site = open_site(supervise_submit="worker")
    task, old = supervised(site), beside(site)
    before = [task.delay(order) for order in ("A", "B", "C")]
    with working(old):
        assert [got(result) for result in before] == ["paid A", "paid B", "paid C"]
    assert site.supervise.jobs()[1] == 0
    after = [task.delay(order) for order in ("D", "E", "large F")]
    with working(site):
        site.answer(after[2], "yes")
        assert [got(result) for result in after] == ["paid D", "paid E", "paid large F"]
        site.settled(*after)
    assert site.supervise.jobs()[1] == 3
    assert set(paid.values()) == {1}
    assert len(paid) == 6
    site.check()


@pytest.mark.parametrize("submit", ["worker", "row"])
def test_old_callers_beside_new_workers(open_site: OpenSite, beside: Callable[[Site], Site], submit: str) -> None:
    """What callers send who know nothing of jobs is a job from its receipt on: it can ask, and ends once."""
    site = open_site(supervise_submit=submit)
    supervised(site)
    calls = [beside(site).app.tasks[NAME].delay(order) for order in ("A", "large B")]
    with working(site):
        wait_for(lambda: site.supervise.jobs()[1] == 2, what="both jobs")
        site.answer(calls[1], "yes")
        assert [got(result) for result in calls] == ["paid A", "paid large B"]
        site.settled(*calls)
    assert paid == {"A": 1, "large B": 1}
    assert {site.entries(result)[0].actor for result in calls} == {"message"}
    site.check()


def test_callers_that_make_rows_before_all_workers_are_new(
    open_site: OpenSite, beside: Callable[[Site], Site], caplog: pytest.LogCaptureFixture
) -> None:
    """The second step too early: an old worker runs the message and cannot say so; the job runs again, and tells it."""
    site = open_site()
    result = supervised(site).delay("A")
    with working(beside(site)):
        assert got(result) == "paid A"
    assert (site.job(result).state, paid["A"]) == (State.PENDING, 1)
    with caplog.at_level("WARNING", "celery_supervise"), working(site):
        site.wait(result, State.COMPLETED)
        site.settled(result)
    assert paid["A"] == 2
    assert "supervise.republished" in caplog.text
    site.check()


def test_base_is_taken_away_again(open_site: OpenSite, beside: Callable[[Site], Site]) -> None:
    """Back to `"worker"`, let what is open end, then remove `base=`: nothing is lost, nothing runs twice."""
    site = open_site()
    task, plain = supervised(site), beside(site)
    open_jobs = [task.delay("A"), task.delay("large B")]
    with working(site):
        question = site.parked(open_jobs[1])
        (left,) = stranded(site, plain)
        assert (left.unfinished.task, left.unfinished.state, left.unfinished.jobs) == (NAME, "parked", 1)
        assert "supervised" in left.why
        site.supervise.answer(question.id, "yes", actor="user:ann")
        assert [got(result) for result in open_jobs] == ["paid A", "paid large B"]
        site.settled(*open_jobs)
    assert stranded(site, plain) == []
    last = supervised(open_site(supervise_submit="worker")).delay("C")  # callers as in the first step
    with working(plain):
        assert got(last) == "paid C"
        assert got(plain.app.tasks[NAME].delay("D")) == "paid D"
    assert paid == {"A": 1, "large B": 1, "C": 1, "D": 1}
    assert {job.state for job in site.supervise.jobs()[0]} == {State.COMPLETED}
    site.check()

"""`.get()` of a job that waits for people: it waits, too, or raises, as `supervise_get_parked` says."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
from celery import chain
from celery.exceptions import TimeoutError as CelerysTimeout
from celery.result import AsyncResult

from celery_supervise import ConfigError, JobParked, SupervisedTask
from tests.celery.site import Site, working

OpenSite = Callable[..., Site]


def copied(error: JobParked) -> JobParked:
    """As pickle would rebuild it."""
    return copy.copy(error)


def asking(site: Site) -> Any:
    """A task that asks."""

    def pay(self: SupervisedTask, amount: int) -> int:
        return amount if self.ask("approve", "Pay?", schema={"type": "boolean"}) else 0

    return site.app.task(base=SupervisedTask, bind=True, shared=False, name="shop.decided")(pay)


def after(site: Site) -> Any:
    """What comes after it."""

    def book(amount: int) -> int:
        return amount + 1

    return site.app.task(base=SupervisedTask, shared=False, name="shop.book")(book)


def test_it_raises_where_the_app_says_so(open_site: OpenSite) -> None:
    """With the question, as a timeout of Celery's; also for a job before it in a chain. Answered, it waits again."""
    site = open_site(supervise_get_parked="raise")
    task, book = asking(site), after(site)
    with working(site):
        result = task.delay(7)
        question = site.parked(result)
        with pytest.raises(JobParked) as parked:
            result.get(timeout=60)
        assert isinstance(parked.value, CelerysTimeout)
        assert (parked.value.job_id, parked.value.question_id) == (result.id, str(question.id))
        assert parked.value.reason == "awaiting_user_answer:approve"
        assert copied(parked.value).question_id == str(question.id)
        by_id = task.AsyncResult(result.id)
        with pytest.raises(JobParked):
            by_id.get(timeout=60)
        follows = chain(task.s(1), book.s()).apply_async()
        site.parked(follows.parent)
        with pytest.raises(JobParked) as parked:
            follows.get(timeout=60)
        assert parked.value.job_id == follows.parent.id
        for one in (result, follows.parent):
            site.answer(one, True)
        assert (result.get(timeout=30), by_id.get(timeout=30), follows.get(timeout=30)) == (7, 7, 2)


def test_an_answered_job_is_waited_for(open_site: OpenSite) -> None:
    """The result backend still calls it parked, the row knows better: `get` waits, and says so when time is over."""
    site = open_site(supervise_get_parked="raise")
    task = asking(site)
    with working(site):
        result = task.delay(7)
        site.parked(result)
    site.answer(result, True)
    assert result.state == "PARKED"
    with pytest.raises(CelerysTimeout) as over:
        result.get(timeout=1.2)
    assert not isinstance(over.value, JobParked)


def test_it_waits_by_default(open_site: OpenSite) -> None:
    """Celery's own result: `get` ends with the timeout, or with the job."""
    site = open_site()
    task = asking(site)
    with working(site):
        result = task.delay(7)
        assert type(result) is type(site.app.AsyncResult("any"))
        site.parked(result)
        with pytest.raises(CelerysTimeout) as over:
            result.get(timeout=0.3)
        assert not isinstance(over.value, JobParked)
        site.answer(result, True)
        assert result.get(timeout=30) == 7


def test_errors_of_the_task_come_through(open_site: OpenSite) -> None:
    """A task that raises a timeout of its own, and one whose result is ignored."""
    site = open_site(supervise_get_parked="raise")

    def late() -> None:
        raise CelerysTimeout("of my own")

    task, book = site.app.task(base=SupervisedTask, shared=False, name="shop.late")(late), after(site)
    with working(site):
        with pytest.raises(CelerysTimeout, match="of my own"):
            task.delay().get(timeout=30)
        assert book.apply_async((1,), ignore_result=True).get(timeout=30) is None


def test_only_these_two(open_site: OpenSite) -> None:
    """Another word is refused, with the two."""
    site = open_site(supervise_get_parked="fail")
    with pytest.raises(ConfigError, match="raise, wait"):
        asking(site).delay(1)
    assert isinstance(AsyncResult("any", app=site.app), AsyncResult)

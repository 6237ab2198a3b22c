"""An export that finishes as its user cancels, or as its worker loses it: what the user sees, and what is left."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from celery import Celery
from celery.exceptions import TaskRevokedError
from celery.result import AsyncResult

from celery_supervise import Conflict, State, SupervisedTask, queries
from celery_supervise.store.leases import LOSE
from tests.celery.site import Site
from tests.tools import wait_for

app = Celery("export", set_as_current=False)
store: dict[str, str] = {}
meanwhile: list[Callable[[str], None]] = []


@pytest.fixture(autouse=True)
def _forget() -> None:
    store.clear()
    meanwhile.clear()


@app.task(shared=False)
def remove(path: str) -> None:
    """Take an upload away."""
    store.pop(path, None)


@app.task(base=SupervisedTask, bind=True, shared=False)
def export(self: SupervisedTask) -> str:
    """Upload a file of this attempt's own, and return the link to it."""
    path = f"export-{self.attempt_id}"
    self.on_abandon(remove.si(path), name=path)
    store[path] = "rows"
    for happens in meanwhile[:]:
        meanwhile.remove(happens)
        happens(str(self.request.id))
    return path


def visible(shop: Site, result: AsyncResult[Any]) -> tuple[State, bytes | None]:
    """What an API shows of a job: its state, and its result."""
    stored = queries.payload(shop.runtime.door, str(result.id), "result")
    return shop.job(result).state, stored.data if stored else None


def test_a_cancel_that_comes_first_wins(shop: Site) -> None:
    """The upload was done, the link is shown to nobody, and the file is taken away."""
    meanwhile.append(lambda job_id: shop.supervise.cancel(job_id, actor="user:ann"))
    result = export.delay()
    shop.settled(result)
    assert visible(shop, result) == (State.CANCELLED, None)
    with pytest.raises(TaskRevokedError):
        result.get(timeout=20)
    wait_for(lambda: store == {}, what="the file to be taken away")
    (late,) = shop.supervise.rejected(str(result.id))
    assert late.size > 0


def test_an_export_that_comes_first_wins(shop: Site) -> None:
    """The cancel is told that it has completed; link and file stay."""
    result = export.delay()
    path = result.get(timeout=20)
    shop.settled(result)
    with pytest.raises(Conflict) as refused:
        shop.supervise.cancel(str(result.id), actor="user:ann")
    assert (refused.value.code, refused.value.state) == ("already_final", State.COMPLETED)
    assert visible(shop, result)[0] is State.COMPLETED
    assert store == {path: "rows"}


def test_an_upload_whose_worker_has_lost_the_job(shop: Site) -> None:
    """Its result is refused, its own file taken away; the next attempt uploads another, which is what is shown."""

    def loses(job_id: str) -> None:
        token = shop.supervise.job(job_id).current_token
        ids = {"job_id": job_id, "token": token, "ticket_id": uuid4()}
        shop.runtime.door.one(LOSE, **ids, cause="frozen", actor="worker:w", settle_after=timedelta(0))

    meanwhile.append(loses)
    result = export.delay()
    path = result.get(timeout=20)
    wait_for(lambda: store == {path: "rows"}, what="the lost attempt's file to be taken away")
    assert [one.outcome for one in shop.supervise.attempts(str(result.id))] == ["lost", "completed"]
    assert "refused" in shop.events(result)

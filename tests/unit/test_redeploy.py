"""What a shop's test sees when it deploys new code in the middle of old code, everywhere."""

from __future__ import annotations

from typing import Any

import pytest
from celery import Celery

from celery_supervise import Options, Remembered, SupervisedTask
from celery_supervise.testing import Diverged, redeploy

app = Celery("redeploy", broker="memory://")


def as_texts(memory: Remembered) -> None:
    """What the new code expects; a job may not have come so far."""
    memory.rename("load", "rows")
    if "rows" in memory:
        memory.write("rows", [str(row) for row in memory.read("rows")])
    if "pay" in memory:
        memory.write("pay", {**memory.read("pay"), "last": str(memory.read("pay")["last"])})


def needs_pay(memory: Remembered) -> None:
    """Cannot do without."""
    memory.read("pay")


@app.task(base=SupervisedTask, bind=True)
def old(self: SupervisedTask) -> Any:
    """Version 1."""
    rows = self.step("load", lambda: [1, 2])
    self.ask("go", "Go on?", choices=["yes"])
    paid = self.each("pay", rows, key=lambda row: row, paid=0)
    for row in paid:
        paid.paid += row
    return paid.paid


def new(self: SupervisedTask) -> Any:
    """Version 2."""
    rows = self.step("rows", lambda: ["1", "2"])
    self.ask("go", "Go on?", choices=["yes"])
    paid = self.each("pay", rows, key=lambda row: row, paid=0)
    for row in paid:
        paid.paid += int(row)
    return rows, paid.paid


def task(name: str, **options: Any) -> Any:
    """The new code, with these options."""
    return app.task(base=SupervisedTask, bind=True, name=name, supervise=Options(**options))(new)


def test_new_code_goes_on_wherever_old_code_was() -> None:
    """Before anything, after each step, answer and item: nothing is done twice, nothing is left out."""
    results = redeploy(old, task("good", version=2, migrate={1: as_texts}), answers={"go": "yes"})
    assert results == [(["1", "2"], 3)] * 6


def test_where_it_cannot_is_told() -> None:
    """The place of the old code after which the new one fails, and how."""
    with pytest.raises(Diverged, match=r"killed after checkpoint 3 \('pay'\): CursorLost"):
        redeploy(old, task("bare", version=1), answers={"go": "yes"})
    with pytest.raises(Diverged, match=r"checkpoint 0 \('the beginning'\): InvalidInput"):
        redeploy(old, task("needs", version=2, migrate={1: needs_pay}), answers={"go": "yes"})
    with pytest.raises(Diverged, match="says nothing of version 1"):
        redeploy(old, task("says", version=2), answers={"go": "yes"})


def test_what_the_old_code_does_is_its_own() -> None:
    """An error of it is no fault of the deploy."""

    def broken(self: SupervisedTask) -> None:
        self.step("load", lambda: 1)
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        redeploy(broken, new)

"""What a type checker sees of a body: never run, checked by mypy. Each ignore is a call that must be refused."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from functools import partial
from typing import Any, Literal

from pydantic import BaseModel
from typing_extensions import assert_type

from celery_supervise import SupervisedTask
from celery_supervise.attempt import StoreJournal
from celery_supervise.body import Body
from celery_supervise.journal import Journal, MemoryJournal
from celery_supervise.ledger import Decisions
from celery_supervise.loop import Loop
from celery_supervise.testing import Rehearsal, answers, rehearse
from celery_supervise.values import IDENTITY, Codec


@dataclass
class Row:
    """An item."""

    id: int
    amount: Decimal


class Approval(BaseModel):
    """A form."""

    approved: bool


def load(batch: int, *, limit: int = 10) -> list[Row]:
    """A step."""
    raise NotImplementedError(batch, limit)


def nothing() -> None:
    """A step without a result."""


def steps(body: Body) -> None:
    """A step has its function's arguments and result."""
    assert_type(body.step("load", load, 7), list[Row])
    assert_type(body.step("load", load, 7, limit=3), list[Row])
    assert_type(body.step("load", partial(load, 7)), list[Row])
    assert_type(body.step("count", lambda: 7), int)
    assert_type(body.step("row", Row, 1, Decimal(1)), Row)
    body.step("load", load)  # type: ignore[call-arg]
    body.step("load", load, "7")  # type: ignore[arg-type]
    body.step("load", load, 7, limits=3)  # type: ignore[call-arg]
    body.step(7, load, 7)  # type: ignore[arg-type]


def cleanups(task: SupervisedTask, body: Body) -> None:
    """A signature, and a name by keyword."""
    task.on_abandon(task.si(7), name="remove")
    task.on_abandon(task.si(7))  # type: ignore[call-arg]
    task.on_abandon("shop.remove", name="remove")  # type: ignore[arg-type]
    assert_type(task.attempt_id, str)
    assert_type(body.attempt_id, str)


def options(body: Body, task: SupervisedTask) -> None:
    """Options change nothing of what a step takes and gives."""
    some = body.options(timeout=timedelta(seconds=1), verify=bool)
    assert_type(some.step("load", load, 7, limit=3), list[Row])
    assert_type(task.options(timeout=timedelta(seconds=1)).step("count", lambda: 7), int)
    some.step("load", load)  # type: ignore[call-arg]
    body.options(timeout=30)  # type: ignore[arg-type]
    body.options(verify=7)  # type: ignore[arg-type]


def questions(body: Body) -> None:
    """An answer has the type of the form, or of the choices."""
    assert_type(body.ask("a", "?", form=Approval), Approval)
    assert_type(body.ask("a", "?", form=Approval).approved, bool)
    assert_type(body.ask("a", "?", choices=["skip", "stop"]), str)
    assert_type(body.ask("a", "?", choices=[1, 2]), int)
    assert_type(body.ask("a", "?", choices=[True, False]), bool)
    assert_type(body.ask("a", "?", schema={"type": "integer"}), Any)
    narrow: list[Literal["skip", "stop"]] = ["skip", "stop"]
    said: Literal["skip", "stop"] = body.ask("a", "?", choices=narrow)
    assert_type(said, Literal["skip", "stop"])
    body.ask("a", "?", form=Approval, show=[Row(1, Decimal(1))], to="group:a", ttl=timedelta(1), on_change="keep")
    body.ask("a", "?")  # type: ignore[call-overload]
    body.ask("a", "?", form=Approval, choices=["a"])  # type: ignore[call-overload]
    body.ask("a", "?", form=Row)  # type: ignore[type-var]
    body.ask("a", "?", choices=[1.5])  # type: ignore[type-var]
    body.ask("a", "?", form=Approval, ttl=60)  # type: ignore[call-overload]
    body.ask("a", "?", form=Approval, on_change="ask")  # type: ignore[call-overload]
    body.ask("a", "?", form=Approval, shwo=1)  # type: ignore[call-overload]


def loops(body: Body, rows: list[Row]) -> None:
    """A loop has its items' type."""
    loop = body.each("pay", rows, key=lambda row: row.id, paid=Decimal(0))
    assert_type(loop, Loop[Row])
    for row in loop:
        assert_type(row, Row)
        loop.paid += row.amount
        loop["paid"] += row.amount
    for number in body.each("count", range(3), key=str, every=timedelta(seconds=5)):
        assert_type(number, int)
    body.each("pay", rows, key=lambda row: row.amount)  # type: ignore[arg-type, return-value]
    body.each("pay", rows, key=lambda row: row.id, every="3")  # type: ignore[arg-type]
    body.each("pay", rows)  # type: ignore[call-arg]


def the_rest(body: Body) -> None:
    """The other calls."""
    assert_type(body.effect_key(7), str)
    assert_type(body.decisions, Decisions)
    assert_type(body.decisions.visited, tuple[str, ...])
    body.decisions = body.decisions  # type: ignore[misc]
    body.decisions.node = "x"  # type: ignore[misc]
    assert_type(body.checkpoint("loaded", total=7), None)
    body.progress(1, 2, "x")
    body.progress("1")  # type: ignore[arg-type]
    with body.transaction(using="default"):
        assert_type(body.step("count", nothing), None)


def tasks(task: SupervisedTask, rows: list[Row]) -> None:
    """The same calls on a task."""
    assert_type(task.step("load", load, 7), list[Row])
    task.step("load", load, "7")  # type: ignore[arg-type]
    assert_type(task.ask("a", "?", form=Approval), Approval)
    assert_type(task.ask("a", "?", choices=["skip", "stop"]), str)
    task.ask("a", "?", form=Approval, ttl=60)  # type: ignore[call-overload]
    for row in task.each("pay", rows, key=lambda row: row.id):
        assert_type(row, Row)


def conforms(journal: StoreJournal) -> Journal:
    """The journal of a worker is what a body needs."""
    return journal


def seams() -> None:
    """What tests use, and the seams."""
    run = rehearse(load, 7, answers={"a": Approval(approved=True), "b": lambda asked: asked.prompt})
    assert_type(run, Rehearsal)
    assert_type(run.asked, list[str])
    rehearse(load, 7, answers=lambda asked: asked.key == "a")
    rehearse(load, 7, answers=7)  # type: ignore[arg-type]
    with answers({"a": None}):
        pass
    journal: Journal = MemoryJournal()
    codec: Codec = IDENTITY
    Body(journal, job_id="a", codec=codec, mode="eager")
    Body(journal, job_id="a", mode="quick")  # type: ignore[arg-type]

"""Celery's own pydantic support. Its 5.5 takes annotations as they stand, so that they must not be text here."""

from typing import Any

import pytest
from celery import VERSION, Celery
from pydantic import BaseModel

from celery_supervise import SupervisedTask
from tests.celery.site import Site

app = Celery("pydantic", set_as_current=False)
PYDANTIC = {"pydantic": True} if VERSION >= (5, 5) else {}


class Order(BaseModel):
    """What a pydantic task takes."""

    number: int


class Receipt(BaseModel):
    """What it returns."""

    paid: int


@app.task(base=SupervisedTask, bind=True, shared=False, **PYDANTIC)
def typed(self: Any, order: Order) -> Receipt:
    ok = self.ask("q", "Well?", choices=["yes"])
    assert ok == "yes"
    return Receipt(paid=order.number)


@pytest.mark.may_skip
@pytest.mark.skipif(not PYDANTIC, reason="Celery itself has it from 5.5 on")
def test_pydantic(shop: Site) -> None:
    """Celery's own pydantic support: models in, models out, around a question."""
    result = typed.delay({"number": 7})
    shop.answer(result, "yes")
    assert result.get(timeout=20) == {"paid": 7}

"""What the shop does behind its web pages."""

from __future__ import annotations

import os
from typing import Any

from celery import Celery, Task, chain, chord
from celery.result import AsyncResult
from fast.db import Order, unit

app = Celery("fast", broker=os.environ.get("SHOP_BROKER", "memory://"), backend=os.environ.get("SHOP_BACKEND"))
app.conf.update(broker_connection_retry_on_startup=True, result_extended=True)

mails: list[str] = []
LIMIT = 100


class PrinterJam(Exception):
    """The printer."""


@app.task
def pack(order_id: int) -> int:
    with unit() as session:
        session.get_one(Order, order_id).state = "packed"
    return order_id


@app.task(bind=True, autoretry_for=(PrinterJam,), default_retry_delay=0, max_retries=2)
def invoice(self: Task, order_id: int, jams: int = 0) -> int:
    if self.request.retries < jams:
        raise PrinterJam(order_id)
    return order_id


@app.task(ignore_result=True)
def mail(customer: str, text: str) -> None:
    mails.append(f"{customer}: {text}")


@app.task
def ship(order_id: int, carrier: str = "post") -> str:
    with unit() as session:
        order = session.get_one(Order, order_id)
        order.state = f"shipped by {carrier}"
        mail.delay(order.customer, "on its way")
    return carrier


@app.task
def refund(order_id: int, amount: int) -> int:
    with unit() as session:
        session.get_one(Order, order_id).refunded += amount
    return amount


@app.task
def amount_of(order_id: int) -> int:
    with unit() as session:
        return session.get_one(Order, order_id).amount


@app.task
def total(amounts: list[int]) -> int:
    return sum(amounts)


def process(order_id: int, **options: Any) -> AsyncResult:
    """All that an order needs."""
    return chain(pack.s(order_id), invoice.s(**options), ship.s(carrier="bike")).apply_async()


def turnover(orders: list[int]) -> AsyncResult:
    """What these are worth."""
    return chord(amount_of.s(one) for one in orders)(total.s())

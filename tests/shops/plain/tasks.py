"""A web shop's background work: a dozen Celery tasks, written as such tasks are written."""

from __future__ import annotations

import os
from typing import Any

from celery import Celery, Task, chain, chord, group, shared_task
from celery.exceptions import Ignore, Reject

app = Celery("shop", broker=os.environ.get("SHOP_BROKER", "memory://"), backend=os.environ.get("SHOP_BACKEND"))
app.conf.update(
    task_routes={"plain.tasks.resize": {"queue": "media"}},
    task_create_missing_queues=True,
    broker_connection_retry_on_startup=True,
)

outbox: list[str] = []
stock: dict[str, int] = {}
attempts: list[str] = []


class GatewayDown(Exception):
    """The payment gateway did not answer."""


class OutOfStock(Exception):
    """There is none left."""

    def __init__(self, sku: str, wanted: int) -> None:
        super().__init__(sku, wanted)
        self.sku = sku
        self.wanted = wanted


class Audited(Task):
    """The shop's own base: writes down how each of its tasks ended."""

    abstract = True

    def on_success(self, retval: Any, task_id: str, args: Any, kwargs: Any) -> None:
        outbox.append(f"audit: {self.name} ok")

    def on_failure(self, exc: Exception, task_id: str, args: Any, kwargs: Any, einfo: Any) -> None:
        outbox.append(f"audit: {self.name} {type(exc).__name__}")


@app.task
def send_mail(to: str, subject: str = "hello") -> str:
    outbox.append(f"mail: {to}: {subject}")
    return to


@app.task(bind=True)
def whoami(self: Task) -> dict[str, Any]:
    request = self.request
    return {
        "id": request.id,
        "name": self.name,
        "retries": request.retries,
        "tenant": (request.headers or {}).get("tenant") or request.get("tenant"),
        "root": request.root_id,
        "parent": request.parent_id,
    }


@app.task(bind=True, max_retries=3, default_retry_delay=0)
def charge(self: Task, order: str, fails: int = 0) -> str:
    attempts.append(order)
    if self.request.retries < fails:
        try:
            raise GatewayDown(order)
        except GatewayDown as error:
            raise self.retry(exc=error, countdown=0)
    return f"charged {order}"


@app.task(autoretry_for=(GatewayDown,), retry_kwargs={"max_retries": 2, "countdown": 0})
def refund(order: str, fails: int = 0) -> str:
    attempts.append(order)
    if len(attempts) <= fails:
        raise GatewayDown(order)
    return f"refunded {order}"


@app.task(base=Audited)
def reserve(sku: str, count: int) -> int:
    if stock.get(sku, 0) < count:
        raise OutOfStock(sku, count)
    stock[sku] -= count
    return stock[sku]


@app.task(bind=True)
def resize(self: Task, name: str, sizes: list[int]) -> list[str]:
    done = []
    for size in sizes:
        self.update_state(state="PROGRESS", meta={"done": len(done), "of": len(sizes)})
        done.append(f"{name}@{size}")
    return done


@app.task(ignore_result=True)
def track(event: str) -> str:
    outbox.append(f"track: {event}")
    return event


@shared_task
def add(x: int, y: int) -> int:
    return x + y


@app.task
def total(values: list[int]) -> int:
    return sum(values)


@app.task(bind=True)
def checkout(self: Task, order: str, prices: list[int]) -> str:
    """Starts others and does not wait for them."""
    track.delay(f"checkout {order}")
    return str(group(add.s(price, 0) for price in prices).apply_async().id)


@app.task(bind=True)
def moderate(self: Task, text: str) -> str:
    if "spam" in text:
        self.update_state(state="SPAM", meta={"text": text})
        raise Ignore
    if "broken" in text:
        raise Reject("cannot be read", requeue=False)
    return text


@app.task(time_limit=30, soft_time_limit=20, serializer="json", compression="zlib", priority=None)
def report(year: int, **options: Any) -> str:
    return f"report {year} {sorted(options.items())}"


def order_flow(order: str, prices: list[int]) -> Any:
    """What the web process starts when somebody pays."""
    return chain(chord([add.s(price, 1) for price in prices], total.s()), add.s(100))

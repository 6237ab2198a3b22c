"""The tasks of these tests. Their source is copied to the worker: nothing of the tests may be imported here.

A side effect is a line in the worker's log. A body that must be caught stands at a gate, a key in the result backend.
"""

from __future__ import annotations

import time

from celery import shared_task
from celery.utils.log import get_task_logger

from celery_supervise import SupervisedTask

effects = get_task_logger("effects")
GATE_SECONDS = 120.0
POLL_SECONDS = 0.02


class NotYet(Exception):
    """What `flaky` raises."""


def effect(text: str) -> str:
    """Something that is to happen once."""
    effects.info("effect: %s.", text)
    return text


@shared_task(base=SupervisedTask, bind=True)
def double(self: SupervisedTask, number: int) -> int:
    """Asks nobody."""
    effect(f"double {number}")
    return 2 * number


@shared_task(base=SupervisedTask, bind=True)
def approve(self: SupervisedTask, amount: int) -> int:
    """Load, ask, pay."""
    self.step("load", effect, f"load {amount}")
    if self.ask("approve", f"Pay {amount}?", choices=["yes", "no"]) == "no":
        return 0
    self.step("pay", effect, f"pay {amount}")
    return amount


@shared_task(base=SupervisedTask, bind=True)
def walk(self: SupervisedTask, gate: str) -> list[str]:
    """Stands at a gate between two steps."""
    done = [self.step("one", effect, f"one {gate}")]
    effect(f"at {gate}")
    until = time.monotonic() + GATE_SECONDS
    while not self.backend.client.get(gate):
        if time.monotonic() > until:
            raise TimeoutError(gate)
        time.sleep(POLL_SECONDS)
    return [*done, self.step("two", effect, f"two {gate}")]


@shared_task(base=SupervisedTask, bind=True, autoretry_for=(NotYet,), default_retry_delay=0, max_retries=3)
def flaky(self: SupervisedTask, fails: int) -> int:
    """Fails so often; what it has paid for it does not pay for again."""
    self.step("paid", effect, "paid")
    if self.request.retries < fails:
        raise NotYet
    return int(self.request.retries)


@shared_task
def total(numbers: list[int]) -> int:
    """Plain: the body of a chord."""
    effect(f"total {sum(numbers)}")
    return sum(numbers)


@shared_task
def failed(*told: object) -> None:
    """Plain: an errback."""
    effect("failed")

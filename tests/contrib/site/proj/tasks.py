"""The project's tasks."""

from __future__ import annotations

from typing import Any

from celery import Task, shared_task
from django.contrib.auth.models import Group
from django.db import transaction

from celery_supervise import SupervisedTask

seen: list[Any] = []


@shared_task(base=SupervisedTask)
def note(what: str) -> str:
    seen.append(what)
    return what


@shared_task(base=SupervisedTask, bind=True)
def approve(self: SupervisedTask, to: str | None = None) -> str:
    return str(self.ask("ok", "Pay 3 vendors?", choices=["yes", "no"], **({"to": to} if to else {})))


@shared_task(base=SupervisedTask, bind=True)
def enrol(self: SupervisedTask, name: str, *, fails: bool = False) -> str:
    """Writes a row of the shop's, and its step, in one commit."""
    with self.transaction(using="default"):
        self.step("enrol", make_group, name)
        if fails and self.request.retries == 0:
            raise ValueError(name)
    return name


def make_group(name: str) -> str:
    return str(Group.objects.create(name=name))


@shared_task(base=SupervisedTask, bind=True)
def careless(self: SupervisedTask) -> None:
    """Calls us while a transaction of Django's is open."""
    with transaction.atomic():
        self.step("inside", str)


@shared_task(base=SupervisedTask)
def pay(order_id: int) -> int:
    return order_id


@shared_task
def plain(what: str) -> str:
    assert not isinstance(plain, SupervisedTask)
    assert isinstance(plain, Task)
    seen.append(what)
    return what

"""The app that the command line is tested with: one supervised task, settings from the environment."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import click
from celery import Celery, signals

from celery_supervise import SupervisedTask


def make_app(**settings: Any) -> Celery:
    """An app of its own, with a broker in memory."""
    app = Celery("cli_app", set_as_current=False)
    app.conf.update({"broker_url": "memory://", "worker_prefetch_multiplier": 1, **settings})
    app.task(base=SupervisedTask, bind=True, name="shop.pay", shared=False)(pay)
    return app


def pay(self: SupervisedTask, amount: int) -> int:
    """A body that no test here runs: what a worker does is done through the service."""
    return amount if self.ask("approve", f"Pay {amount}?", schema={"type": "boolean"}) else 0


app = make_app(supervise_database_url=os.environ.get("TEST_DATABASE_URL"))
# a shop's own option of all celery commands, and what the shop does with it
app.user_options["preload"].add(click.Option(["--tenant"]))


@signals.user_preload_options.connect
def tell(options: Mapping[str, Any], **_: Any) -> None:
    """Say which tenant the command is for."""
    click.echo(f"tenant: {options['tenant']}", err=True)

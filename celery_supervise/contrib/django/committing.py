"""Calls that count with the commit of a Django transaction: what Celery's own `DjangoTask` has. Commits nothing."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from celery.result import AsyncResult
from django.db import DEFAULT_DB_ALIAS, transaction
from kombu.utils.uuid import uuid


def on_commit(
    task: Any, args: Any, kwargs: Any, *, using: str | None, database: str | None, options: Mapping[str, Any]
) -> AsyncResult[Any]:
    """The call, to count with the commit of the alias `using`; by default of the one that has our tables.

    `database`: the alias that has them, None where the call makes no row, or makes it elsewhere. Where it is the same,
    the row joins the transaction. Where it is not, the call itself waits for the commit, as Django's own does: a
    process that dies in between has not called.
    """
    alias = using or database or DEFAULT_DB_ALIAS
    if alias == database:
        said = {**(options.get("supervise") or {}), "using": alias}
        joined: AsyncResult[Any] = task.apply_async(args, kwargs, **{**options, "supervise": said})
        return joined
    given = {**options, "task_id": options.get("task_id") or uuid()}
    transaction.on_commit(partial(task.apply_async, args, kwargs, **given), using=alias)
    later: AsyncResult[Any] = task.AsyncResult(given["task_id"])
    return later

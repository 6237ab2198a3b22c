"""The threads of a worker's main process: what they take for alive, and how much they can be told at once."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from celery.concurrency.gevent import TaskPool as Gevent
from celery.concurrency.prefork import TaskPool as Prefork
from celery.concurrency.thread import TaskPool as Threads

from celery_supervise import ConfigError, SupervisedTask
from celery_supervise.engine import create_engine
from celery_supervise.pools import check_pool
from celery_supervise.worker import Keeper, is_alive
from tests.celery.site import Site


def test_alive() -> None:
    """This process is; one that has ended is not, whether or not it was reaped."""
    ended = subprocess.Popen([sys.executable, "-c", ""])
    try:
        os.waitid(os.P_PID, ended.pid, os.WEXITED | os.WNOWAIT)
        assert not is_alive(ended.pid)
    finally:
        ended.wait()
    assert not is_alive(ended.pid)
    assert is_alive(os.getpid())


def test_pools_that_are_refused() -> None:
    """Green threads that nothing has made green would stand still all together; the others need nothing."""
    engine = create_engine("postgresql://nobody@127.0.0.1:1/nothing")
    with pytest.raises(ConfigError, match="only gevent is supported"):
        check_pool(Gevent, engine)
    for pool in (Prefork, Threads):
        check_pool(pool, engine)


def test_many_reports_at_once(site: Site) -> None:
    """After an outage thousands may wait: all are acted on, in order, whatever one of them raises."""
    site.app.task(base=SupervisedTask, shared=False, name="shop.noop")(int)
    done: list[int] = []

    def report(number: int) -> None:
        done.append(number)
        if number == 7:
            raise ValueError("a bug")

    for number in range(5000):
        site.runtime.reports.put(lambda number=number: report(number))  # type: ignore[misc]  # mypy#12557
    Keeper(site.runtime).listen(0)
    assert done == list(range(5000))

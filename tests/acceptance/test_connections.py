"""How many connections to Postgres a worker has: what `docs/operating.md` counts with."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Collection
from contextlib import closing
from urllib.parse import urlsplit

import psutil
import psycopg2

from tests.acceptance.shop import Shop
from tests.tools import wait_for

CHILDREN = 3
LOOKS_PER_SECOND = 50


def test_one_a_child_and_two_a_main_process(own: Shop) -> None:
    """Under load and with questions open, a child has one, and the worker's main process at most two."""
    worker = own.worker(concurrency=CHILDREN)
    children = worker.children
    asked = [own.send("approve", number) for number in range(2 * CHILDREN)]
    added = [own.send("add", number, 1) for number in range(20 * CHILDREN)]
    most: Counter[int] = Counter()
    while not all(own.job(result).settled_at for result in added):
        most |= connections(own, [worker.pid, *children])
        time.sleep(1 / LOOKS_PER_SECOND)
    for result in asked:
        own.parked(result)
    most |= connections(own, [worker.pid, *children])  # what is open stays open: also where all was done within a look
    assert most[worker.pid] in {1, 2}  # two, while two of its threads are at it
    assert {pid: most[pid] for pid in children} == dict.fromkeys(children, 1)


def connections(shop: Shop, pids: Collection[int]) -> Counter[int]:
    """How many connections to the shop's Postgres each process has now."""
    port = urlsplit(shop.place.database).port
    return Counter(
        {
            pid: sum(bool(one.raddr) and one.raddr.port == port for one in psutil.Process(pid).net_connections("tcp"))
            for pid in pids
        }
    )


def test_s75_a_main_process_that_used_the_database_before_it_forked(own: Shop) -> None:
    """Each child, of many that live for one job, has a connection of its own, and leaves none behind."""
    names = [[f"ONE {number}", f"TWO {number}"] for number in range(8 * CHILDREN)]
    results = [own.send("walk", both, []) for both in names]
    before = sessions(own)
    worker = own.worker("w", "--max-tasks-per-child", "1", concurrency=CHILDREN, module="tests.acceptance.forked")
    assert [result.get(timeout=90) for result in results] == names
    own.settled(*results)
    assert sorted(own.effects()) == sorted(name for both in names for name in both)
    assert {(own.job(result).attempts, own.job(result).lost_count) for result in results} == {(1, 0)}
    worker.stop()
    wait_for(lambda: sessions(own) <= before, what="the end of its sessions")
    assert "Traceback" not in worker.text()


def sessions(shop: Shop) -> int:
    """How many sessions the shop's database has, but for the one that asks."""
    with closing(psycopg2.connect(shop.app.conf.supervise_database_url)) as asking, asking.cursor() as cursor:
        cursor.execute("SELECT count(*) - 1 FROM pg_stat_activity WHERE datname = current_database()")
        (count,) = cursor.fetchone() or (0,)
        return int(count)

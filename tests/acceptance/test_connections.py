"""How many connections to Postgres a worker has: what `docs/operating.md` counts with."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Collection
from urllib.parse import urlsplit

import psutil

from tests.acceptance.shop import Shop

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

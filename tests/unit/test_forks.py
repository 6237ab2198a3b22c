"""No child is forked while a thread connects; in the child nobody does."""

from __future__ import annotations

import os
from threading import Event, Thread

from celery_supervise.forks import FORKS
from tests.tools import wait_for


def test_a_fork_waits_for_who_connects() -> None:
    """It goes on when the connection is there, and whoever comes meanwhile waits for it."""
    began, may_end, forked = Event(), Event(), Event()

    def connect() -> None:
        with FORKS.held_off():
            began.set()
            may_end.wait(30)

    def fork() -> None:
        FORKS.before()
        forked.set()

    threads = [Thread(target=connect), Thread(target=fork)]
    threads[0].start()
    began.wait(30)
    threads[1].start()
    assert not forked.wait(0.2)
    may_end.set()
    assert forked.wait(30)
    late = Event()
    threads.append(Thread(target=lambda: _connects(late)))
    threads[-1].start()
    assert not late.wait(0.2)
    FORKS.in_parent()
    assert late.wait(30)
    for thread in threads:
        thread.join(30)


def _connects(done: Event) -> None:
    with FORKS.held_off():
        done.set()


def test_a_child_begins_anew() -> None:
    """What its parent's threads were at, is not its own."""
    pid = os.fork()
    if pid == 0:
        with FORKS.held_off():
            os._exit(0)
    assert wait_for(lambda: os.waitpid(pid, os.WNOHANG) == (pid, 0), what="the child")

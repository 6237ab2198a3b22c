"""The sweeps sleep, or were off for long: what is red meanwhile, who does the work, and how a backlog is taken."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from celery.bin.base import CLIContext
from celery.result import AsyncResult
from click.testing import CliRunner

from celery_supervise import State
from celery_supervise.cli import supervise
from example_project import embedded
from example_project.machine import HOST
from tests.acceptance.shop import Shop
from tests.proxy import Proxy
from tests.tools import family, frozen, wait_for

QUESTIONS = 20
JOBS = 150
SOON = timedelta(seconds=1)


def is_red(shop: Shop) -> bool:
    """Whether `doctor` says that the sweeps stand still, and is no success."""
    ran = CliRunner().invoke(supervise, ["doctor"], obj=CLIContext(app=shop.app, no_color=True, workdir=None))
    return "expiry: last ran well" in " ".join(ran.output.split()) and ran.exit_code != 0


def swept(shop: Shop) -> None:
    """Somebody sweeps: a question whose time is over is closed."""
    result = shop.send("impatient", 0.1)
    shop.wait(result, State.EXPIRED, timeout=60)


def test_s48_sweeps_that_sleep(own: Shop, pg_server: embedded.Postgres) -> None:
    """Frozen, or cut off without a word: it is red, another worker does the work, and the sleeper goes on later."""
    with Proxy((HOST, pg_server.port)) as proxy:
        direct = own.place
        own.place = replace(direct, database=proxy.url(direct.database))
        sleeper = own.worker("sleeper")
        swept(own)
        with frozen(*family(sleeper.pid)):
            wait_for(lambda: is_red(own), what="the alarm")
            own.place = direct
            other = own.worker("other")
            swept(own)
            wait_for(lambda: not is_red(own), what="the end of the alarm")
        proxy.silent = True
        swept(own)
        other.kill_all()
        wait_for(lambda: is_red(own), what="the alarm")
        proxy.silent = False
        proxy.cut()  # as the system does with a peer that does not answer: see `engine.LINK`
        swept(own)
        wait_for(lambda: not is_red(own), what="the end of the alarm")


def test_s49_a_backlog_of_what_is_over(own: Shop) -> None:
    """Questions and jobs whose time passed while nothing ran: each expires once, and what is new runs meanwhile."""
    first = own.worker("first", concurrency=2)
    asked = [own.send("impatient", 3.0) for _ in range(QUESTIONS)]
    wait_for(lambda: all(own.count(result, "asked") for result in asked), what="the questions")
    first.kill_all()
    late = [own.send("add", number, 0, supervise={"deadline": SOON}) for number in range(JOBS)]
    over = own.job(late[-1]).created_at + 3 * SOON
    wait_for(lambda: own.now() > over, what="the end of their time")
    own.worker("second", concurrency=2)
    own.worker("third", concurrency=2)
    assert own.send("walk", ["one"], []).get(timeout=40) == ["ONE"]
    own.settled(*asked, *late, timeout=90)
    assert expired_once(own, asked + late)
    assert own.effects() == ["one"]


def expired_once(shop: Shop, results: list[AsyncResult]) -> bool:
    """Whether each of them has expired, and once."""
    return {(shop.job(one).state, shop.count(one, "expired")) for one in results} == {(State.EXPIRED, 1)}

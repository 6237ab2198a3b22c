"""Whole workers die, freeze, or are replaced by others: jobs go on elsewhere, at their checkpoint."""

from __future__ import annotations

import subprocess
import sys

from celery_supervise import State
from tests.acceptance.shop import ROOT, Shop
from tests.tools import family, frozen, wait_for


def test_another_worker_takes_over(own: Shop) -> None:
    """A worker that dies with all its children loses its job when the lease ends; another goes on with it."""
    first = own.worker("first")
    result = own.send("walk", ["one", "two", "three"], ["two"])
    own.at("two")
    own.worker("second")
    first.kill_all()
    own.open("two")
    assert result.get(timeout=40) == ["ONE", "TWO", "THREE"]
    assert own.effects() == ["one", "two", "at two", "at two", "three"]
    assert [attempt.worker for attempt in own.supervise.attempts(result.id)] == ["first@shop", "second@shop"]


def test_s05_a_frozen_worker_wakes_up_after_its_lease(own: Shop) -> None:
    """Nothing that a stale attempt writes is kept, its code is told so past `except Exception`, once in the log."""
    one = own.worker("one")
    result = own.send("thawed")
    own.at("one@shop")
    own.worker("two")
    with frozen(*family(one.pid)):
        own.at("two@shop")
        own.open("one@shop")
    wait_for(lambda: own.count(result, "refused"), what="the stale attempt's refusal")
    wait_for(lambda: own.effects("one@shop AttemptEnded"), what="the stale attempt's second call")
    one.stop()
    own.open("two@shop")
    own.answer(result, "yes")
    assert result.get(timeout=30) == "two@shop"
    assert own.effects("one@shop") == ["one@shop LeaseLost", "one@shop AttemptEnded"]
    assert own.effects("swallowed") == []
    events = own.events(result)
    assert [events.count(event) for event in ("lease_lost", "refused", "asked", "completed")] == [1, 1, 1, 1]
    assert next(entry for entry in own.entries(result) if entry.event == "refused").data["why"] == "stale_attempt"
    winner = own.supervise.attempts(result.id)[-1]
    assert (winner.worker, winner.outcome) == ("two@shop", "completed")


def test_cold_resume_by_another_worker(own: Shop) -> None:
    """A worker that knows nothing but the database continues at the checkpoint, with what was stored there."""
    first = own.worker("first")
    result = own.send("interview", 2)
    own.answer(result, 7)
    wait_for(lambda: own.effects("work 1"), what="the second part")
    own.parked(result)
    first.stop()
    own.broker.flushdb()
    own.answer(result, 8)
    own.worker("second")
    assert result.get(timeout=30) == [7, 8]
    assert own.effects() == ["work 0", "work 1"]
    assert own.job(result).state is State.COMPLETED


def test_cold_resume_from_an_engine_and_an_id(own: Shop) -> None:
    """A process with neither app nor broker goes on with a job where a worker left it, and ends it as that would."""
    first = own.worker("first")
    result = own.send("interview", 2)
    own.answer(result, 7)
    wait_for(lambda: own.effects("work 1"), what="the second part")
    own.parked(result)
    first.kill_all()
    own.answer(result, 8)
    ran = subprocess.run(
        [sys.executable, "-m", "tests.acceptance.cold", own.place.database, str(result.id)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert ran.stdout == "", "no step was run again"
    assert own.job(result).state is State.COMPLETED
    assert own.supervise.result(str(result.id)) == [7, 8]
    assert [attempt.worker for attempt in own.supervise.attempts(str(result.id))][-1] == "cold"
    own.worker("second")
    assert result.get(timeout=30) == [7, 8]
    assert own.effects() == ["work 0", "work 1"]


def test_s27_work_before_a_question_is_not_repeated(shop: Shop) -> None:
    """Effects and questions in a loop: each once, however often the body is entered."""
    result = shop.send("interview", 4)
    for number in range(4):
        shop.answer(result, number)
    assert result.get(timeout=30) == [0, 1, 2, 3]
    assert shop.effects() == [f"work {number}" for number in range(4)]
    assert shop.count(result, "asked") == 4

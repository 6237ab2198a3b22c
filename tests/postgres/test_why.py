"""`why`: for every way in which a job can stand still, one sentence that says it, and the command that moves it."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from celery_supervise.errors import JobNotFound
from celery_supervise.lifecycle import State
from celery_supervise.model import Lease, NodeKind
from celery_supervise.why import Why
from tests.postgres.looking import backdate, execute, lapse, unchanged
from tests.postgres.shop import Shop, failure, new_question, retry, stored

HOUR = timedelta(hours=1)
ANN = "user:ann"
MOMENT = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\dZ \((in )?[\w ]+?( ago)?\)")
INSIDE_WORDS = re.compile("ticket|token|settl|outbox|reap|envelope|relay|lease", re.IGNORECASE)


def told(shop: Shop, job_id: str) -> tuple[str, tuple[str, ...]]:
    """The sentence, with WHEN for each moment, and the command; the look changes nothing."""
    with unchanged(shop, job_id):
        why = shop.supervisor.why(job_id)
    assert not INSIDE_WORDS.search(why.sentence)
    return MOMENT.sub("WHEN", why.sentence), why.command


def test_it_waits_for_an_answer(shop: Shop) -> None:
    """From whom, until when, and which question to answer."""
    question = shop.asked(question=new_question(to=("group:finance", ANN)))
    job_id = shop.job_of(question).id
    by_answer = ("supervise", "answer", str(question.id), "ANSWER")
    waits = "waits for an answer to approve from group:finance, user:ann until WHEN"
    assert told(shop, job_id) == (waits, by_answer)
    shop.supervisor.pause(job_id, actor=ANN)
    assert told(shop, job_id) == (f"{waits}; once answered, it will not start until resumed", by_answer)
    backdate(shop, job_id, "wait_until")
    sentence, command = told(shop, job_id)
    assert sentence.endswith("until WHEN, which is over: it expires with the next sweep")
    assert command == ("supervise", "sweep")


def test_it_was_paused(shop: Shop) -> None:
    """By whom, and that it takes a resume."""
    job = shop.paused()
    assert told(shop, job.id) == (
        "paused by user:ann; it will not start until resumed",
        ("supervise", "resume", job.id),
    )
    shop.supervisor.resume(job.id, actor=ANN)
    assert told(shop, job.id) == (
        "told to go on (paused); waits for a worker to take it from queue celery since WHEN",
        ("worker", "-Q", "celery"),
    )


def test_a_silent_worker(shop: Shop) -> None:
    """Nothing heard for a third of the lease: what comes if it is dead, and when; also where it should cancel."""
    holding = shop.running()
    job_id = holding.lease.job_id
    assert "nothing was heard" not in shop.supervisor.why(job_id).sentence
    execute(
        shop,
        "UPDATE supervise.attempts SET heartbeat_at = clock_timestamp() - interval '25 s',"
        " lease_until = clock_timestamp() + interval '35 s' WHERE job_id = :id",
        id=job_id,
    )
    silent = "nothing was heard of its worker for 25 s: if it is dead, that is noticed after "
    assert silent in shop.supervisor.why(job_id).sentence
    shop.supervisor.cancel(job_id, actor=ANN)
    assert silent in shop.supervisor.why(job_id).sentence


def test_it_is_pausing(shop: Shop) -> None:
    """A running job is not paused before its step ends; one that waits will not start."""
    holding = shop.running()
    holding.checkpoint("load", NodeKind.STEP, stored("1"))
    job_id = holding.lease.job_id
    shop.supervisor.pause(job_id, actor=ANN)
    resume = ("supervise", "resume", job_id)
    assert told(shop, job_id) == (
        "pausing after the current step, as user:ann asked; last checkpoint load at WHEN",
        resume,
    )
    waits = shop.pending("-odd")
    shop.supervisor.pause("-odd", actor=ANN)
    assert told(shop, waits.id) == (
        "it will not start until resumed, as user:ann asked for a pause",
        ("supervise", "resume", "--", "-odd"),
    )


def test_it_runs(shop: Shop) -> None:
    """Where, which attempt, and how far it came; nobody need do anything."""
    holding = shop.running()
    job_id = holding.lease.job_id
    assert told(shop, job_id) == ("running on worker@test (attempt 1); no checkpoint since WHEN", ())
    holding.checkpoint("load", NodeKind.STEP, stored("1"))
    assert told(shop, job_id) == ("running on worker@test (attempt 1); last checkpoint load at WHEN", ())


def test_it_makes_no_progress(shop: Shop) -> None:
    """A body that hangs longer than its task allows is told as such, though its worker lives."""
    holding = shop.running(stall_after=timedelta(minutes=5))
    holding.checkpoint("load", NodeKind.STEP, stored("1"))
    job_id = holding.lease.job_id
    for column in ("progress_at", "stage_at"):
        backdate(shop, job_id, column, timedelta(minutes=7))
    late = "has made no progress for 7 min, 5 min are allowed; last checkpoint load at WHEN"
    assert told(shop, job_id) == (
        f"running on worker@test (attempt 1), and {late}",
        ("supervise", "cancel", job_id),
    )


def test_it_is_being_cancelled(shop: Shop) -> None:
    """Who asked, and that its worker stops at its next step."""
    job_id = shop.running().lease.job_id
    shop.supervisor.cancel(job_id, actor=ANN)
    assert told(shop, job_id) == (
        "cancelling, as user:ann asked: its worker stops at its next step; no checkpoint since WHEN",
        (),
    )


def test_its_worker_is_stopping(shop: Shop) -> None:
    """A job that is to leave its worker, and one that has left it."""
    holding = shop.running()
    job_id = holding.lease.job_id
    execute(shop, "UPDATE supervise.attempts SET hand_over_at = clock_timestamp() WHERE job_id = :id", id=job_id)
    sentence, _ = told(shop, job_id)
    assert sentence.startswith("its worker worker@test is stopping: at its next step it goes to another")
    holding.hand_over()
    sentence, command = told(shop, job_id)
    assert sentence.startswith("its worker worker@test was stopping; its message has not been sent yet, due since")
    assert command == ("supervise", "kick", job_id)


def test_its_worker_was_lost(shop: Shop) -> None:
    """Silent for too long: the sweep will start it again; found dead: it waits for another worker."""
    holding = shop.running()
    job_id = holding.lease.job_id
    lapse(shop, job_id)
    heard = "its worker worker@test was not heard of since WHEN and counts as lost"
    sweep = ("supervise", "sweep")
    assert told(shop, job_id) == (f"{heard}; the job starts again with the next sweep", sweep)
    shop.lose(holding)
    sentence, command = told(shop, job_id)
    assert sentence.startswith("its worker worker@test was lost (its process died); its message has not been sent yet")
    assert command == ("supervise", "kick", job_id)


def test_it_starts_later(shop: Shop) -> None:
    """A first start that is not due, and a retry that is not due, with what failed."""
    job = shop.pending(due=HOUR)
    assert told(shop, job.id) == ("starts at WHEN", ())
    holding = shop.running()
    holding.retry(retry(HOUR), failure())
    assert told(shop, holding.lease.job_id) == (
        "failed (shop.Broken: no) and is to be tried again; starts again at WHEN",
        (),
    )


def test_its_message_was_not_sent(shop: Shop) -> None:
    """The broker was away: since when it is due; then, what the broker said last."""
    shop.broker.down = True
    job = shop.pending()
    sentence, command = told(shop, job.id)
    assert (sentence, command) == ("its message has not been sent yet, due since WHEN", ("supervise", "kick", job.id))
    execute(shop, "UPDATE supervise.outbox SET last_error = 'connection refused' WHERE job_id = :id", id=job.id)
    assert told(shop, job.id)[0] == (
        "its message has not been sent yet, due since WHEN (the last error: connection refused)"
    )


def test_it_waits_for_its_turn(open_shop: Callable[..., Shop]) -> None:
    """Its queue is full, or its owner runs as many as it may: how many there are of both."""
    shop = open_shop(counted=True)
    taken = shop.pending()
    assert isinstance(shop.claim(taken.id), Lease)
    execute(shop, "UPDATE supervise.jobs SET owner_id = 'acme'")
    shop.pending()
    waits = shop.pending(owner_id="acme")
    assert told(shop, waits.id) == (
        "waits for its turn in queue celery (sent and not yet taken: 1; running for acme: 1)",
        ("supervise", "kick", waits.id),
    )
    execute(shop, "UPDATE supervise.jobs SET owner_id = NULL WHERE id = :id", id=waits.id)
    assert told(shop, waits.id)[0] == "waits for its turn in queue celery (sent and not yet taken: 1)"


def test_nobody_takes_its_message(shop: Shop) -> None:
    """Which queue, since when, and exactly how many others were sent to that queue before."""
    first = shop.pending()
    shop.pending(queue="other")
    assert told(shop, first.id) == (
        "waits for a worker to take it from queue celery since WHEN",
        ("worker", "-Q", "celery"),
    )
    second, third = shop.pending(), shop.pending()
    assert told(shop, second.id)[0].endswith("since WHEN, with 1 other before it")
    assert told(shop, third.id)[0].endswith("since WHEN, with 2 others before it")
    shop.hold(first.id)
    assert told(shop, third.id)[0].endswith("since WHEN, with 1 other before it")


def test_no_worker_can_run_it(shop: Shop) -> None:
    """Workers that refused it, and a job that was put aside: start one that has the code."""
    job = shop.pending()
    execute(shop, "UPDATE supervise.jobs SET incompatible_since = clock_timestamp() WHERE id = :id", id=job.id)
    assert told(shop, job.id) == (
        "no worker that took it since WHEN can run it: start one with its code",
        ("worker", "-Q", "celery"),
    )
    job = shop.paused()
    execute(shop, "UPDATE supervise.jobs SET watchdog_stop_reason = 'unknown_task:shop.task' WHERE id = :id", id=job.id)
    assert told(shop, job.id) == (
        "no worker knows the task shop.task: start one with such code",
        ("worker", "-Q", "celery"),
    )


def test_a_parked_job_without_a_reason_is_an_alarm(shop: Shop) -> None:
    """It is told as what must not be, and `doctor` is named."""
    job = shop.paused()
    execute(shop, "UPDATE supervise.jobs SET watchdog_stop_reason = NULL WHERE id = :id", id=job.id)
    assert told(shop, job.id) == ("parked for no reason, which must not be", ("supervise", "doctor"))
    execute(shop, "UPDATE supervise.jobs SET watchdog_stop_reason = 'user_paused' WHERE id = :id", id=job.id)


def test_its_deadline_is_over(shop: Shop) -> None:
    """Nobody has touched it since: the sweep will."""
    job = shop.pending(deadline=HOUR)
    backdate(shop, job.id, "expires_at")
    assert told(shop, job.id) == (
        "its deadline was over at WHEN: it expires with the next sweep",
        ("supervise", "sweep"),
    )


@pytest.mark.parametrize(
    ("state", "sentence"),
    [
        (State.COMPLETED, "completed at WHEN"),
        (State.FAILED, "failed: shop.Broken: no, after 1 attempt, at WHEN"),
        (State.CANCELLED, "cancelled by user:ann, at WHEN"),
        (State.EXPIRED, "expired, since its time was over (its running time was used up), at WHEN"),
    ],
)
def test_it_has_ended(shop: Shop, state: State, sentence: str) -> None:
    """How, by whom, why and when; and whether Celery still has to be told."""
    job = shop.ended(state)
    untold = "; Celery and whoever waits for the result have not been told yet"
    assert told(shop, job.id) == (sentence + untold, ("supervise", "sweep"))
    execute(
        shop, "UPDATE supervise.jobs SET settled_at = clock_timestamp(), log_seq = log_seq WHERE id = :id", id=job.id
    )
    assert told(shop, job.id) == (sentence, ())


def test_who_cancelled_it_and_why(shop: Shop) -> None:
    """The words that came with the cancel are told."""
    job = shop.pending()
    shop.supervisor.cancel(job.id, actor=ANN, why="ordered twice")
    assert told(shop, job.id)[0].startswith("cancelled by user:ann (ordered twice), at WHEN")


def test_why_of_another_is_not_there(shop: Shop, open_shop: Callable[..., Shop]) -> None:
    """A foreign job, one of another namespace and one that no job can be called: told as one that does not exist."""
    job = shop.pending(owner_id="ann")
    asks: list[Callable[[], Any]] = [
        lambda: shop.supervisor.why(job.id, owner="bob"),
        lambda: shop.supervisor.why("a\0b"),
        lambda: open_shop(namespace="second").supervisor.why(job.id),
    ]
    for ask in asks:
        with pytest.raises(JobNotFound):
            ask()
    assert isinstance(shop.supervisor.why(job.id, owner="ann"), Why)

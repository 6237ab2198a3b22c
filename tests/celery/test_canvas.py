"""Chains, groups, chords and links, with members that live through all that a job can. The worker has threads."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from celery import Celery, chain, chord, group
from celery.canvas import Signature
from celery.exceptions import ChordError, Reject, TaskRevokedError
from celery.result import AsyncResult

from celery_supervise import JobExpired, JobLost, Options, State, SupervisedTask, queries
from celery_supervise.model import Message, MessageKind
from celery_supervise.sweeps import EXPIRY, REAPING, Pass
from tests.celery.site import Site, got
from tests.tools import wait_for

app = Celery("canvas", set_as_current=False)
POOL = "threads"
seen: Counter[str] = Counter()
known: set[str] = set()
shops: list[Site] = []


class Broken(Exception):
    """What tasks raise here."""


@pytest.fixture(autouse=True)
def _here(shop: Site) -> None:
    seen.clear()
    shops[:] = [shop]


def task(**options: Any) -> Any:
    """A supervised task of this app."""
    return app.task(base=SupervisedTask, bind=True, shared=False, **options)


# --- bodies ----------------------------------------------------------------------------------------------


@app.task(shared=False)
def note(value: Any, name: str) -> Any:
    """What others lead to: plain, and seen."""
    seen[f"{name} {value}"] += 1
    return value


@app.task(shared=False)
def total(values: list[int], name: str) -> int:
    seen[f"{name} {values}"] += 1
    return sum(values)


@task()
def totals(self: SupervisedTask, values: list[int], name: str) -> int:
    """The same, supervised."""
    seen[f"{name} {values}"] += 1
    return sum(values)


def alarm(name: str) -> Signature:
    """An errback of one argument: Celery calls one of several inline, also where it brings the others (5.4-5.6)."""
    return app.signature(f"alarm {name}")


def _alarmed(self: Any, _job_id: str) -> None:
    seen[self.name] += 1


for _name in ("alone", "chain", "body", "no"):
    app.task(bind=True, shared=False, name=f"alarm {_name}")(_alarmed)


@task(max_retries=3)
def lives(self: SupervisedTask, how: str, value: int = 1) -> int:
    """Lives through something, once, then gives its value."""
    first = self.step("first", lambda: self.attempt_id) == self.attempt_id
    if how == "asks":
        return value + int(self.ask("zero", "Nothing?", schema={"type": "integer"}))
    if first:
        LIVES[how](self)
    self.step("on", lambda: None)
    return value


def pauses(self: SupervisedTask) -> None:
    shops[0].supervise.pause(self.request.id, actor="user:ann")


def retries(self: SupervisedTask) -> None:
    raise self.retry(countdown=0, exc=Broken("not yet"))


def hands_over(_self: SupervisedTask) -> None:
    raise Reject("not here", requeue=True)


def is_reaped(self: SupervisedTask) -> None:
    """Its worker is taken for dead, and the body finds out at its next step."""
    lapse(str(self.request.id))


def lapse(job_id: str) -> None:
    """Let the job's lease end, and be found."""
    shop = shops[0]

    def reaped() -> bool:
        with shop.runtime.engines().begin() as connection:
            connection.exec_driver_sql(
                "UPDATE supervise.attempts SET lease_until = clock_timestamp() - interval '1 s'"
                " WHERE job_id = %(id)s AND ended_at IS NULL",
                {"id": job_id},
            )
        return bool(shop.runtime.sweeper._move(Pass(REAPING), [job_id]))

    wait_for(reaped, what="the reaping")


LIVES: dict[str, Callable[[SupervisedTask], None]] = {
    "pauses": pauses,
    "retries": retries,
    "hands over": hands_over,
    "is reaped": is_reaped,
    "just runs": lambda _: None,
}


def see_through(shop: Site, how: str, results: list[AsyncResult]) -> None:
    """Do what these jobs need from outside."""
    for result in results:
        if how == "asks":
            shop.answer(result, 0)
        if how == "pauses":
            shop.wait(result, State.PARKED)
            shop.supervise.resume(result.id, actor="user:ann")


# --- members that complete -------------------------------------------------------------------------------


def around(member: Signature) -> dict[str, tuple[Signature, int, dict[str, int]]]:
    """Every canvas around a member: it, its result, and what is seen of it."""
    one = note.si(1, "one")
    return {
        "chain": (chain(member.clone(), note.s("next"), note.s("last")), 5, {"next 5": 1, "last 5": 1}),
        "immutable": (chain(member.clone(), note.si(7, "deaf")), 7, {"deaf 7": 1}),
        "chord": (chord([one, member.clone()], total.s("chord")), 6, {"chord [1, 5]": 1}),
        "chord of jobs": (chord([member.clone(), one], totals.s("jobs")), 6, {"jobs [5, 1]": 1}),
        "chord in a chain": (
            chain(chord([member.clone(), one], total.s("inner")), note.s("after")),
            6,
            {"inner [5, 1]": 1, "after 6": 1},
        ),
        "nested chord": (
            chord([one, chord([one, member.clone()], totals.s("in"))], total.s("out")),
            7,
            {"in [1, 5]": 1, "out [1, 6]": 1},
        ),
        "chain in a chord": (
            chord([one, chain(member.clone(), note.s("link"))], total.s("sum")),
            6,
            {"link 5": 1, "sum [1, 5]": 1},
        ),
        "link": (member.clone().on_error(alarm("no")).set(link=[note.s("linked")]), 5, {"linked 5": 1}),
    }


@pytest.mark.parametrize("how", ["asks", *LIVES])
def test_s24_a_member_that_completes(shop: Site, how: str) -> None:
    """Whatever it went through: what follows runs once, after it, with its result."""
    canvas = around(lives.si(how, 5))
    results = {name: signature.apply_async() for name, (signature, _, _) in canvas.items()}
    members = fresh(shop, lives.name, len(canvas))
    see_through(shop, how, members)
    found = {name: got(result) for name, result in results.items()}
    assert found == {name: value for name, (_, value, _) in canvas.items()}
    expected = {line: count for _, _, lines in canvas.values() for line, count in lines.items()}
    wait_for(lambda: seen["linked 5"], what="the link")
    shop.settled(*members)
    assert {line: count for line, count in seen.items() if not line.startswith("one")} == expected
    assert {shop.job(member).attempts for member in members} == {1 if how == "just runs" else 2}


def fresh(shop: Site, name: str, count: int) -> list[AsyncResult]:
    """The jobs of a task that this test has made, when there are so many."""

    def made() -> list[str]:
        jobs = [job.id for job in shop.supervise.jobs(task=name, page=100)[0] if job.id not in known]
        return jobs if len(jobs) == count else []

    found = wait_for(made, what=f"{count} jobs")
    known.update(found)
    return [app.AsyncResult(one) for one in found]


def test_s33_two_questions_in_parallel(shop: Site) -> None:
    """A chord whose members all wait: its body runs after the last answer, not after the first."""
    result = chord([lives.si("asks", 1), lives.si("asks", 2)], total.s("both"))()
    first, second = result.parent.results
    for member in (first, second):
        shop.parked(member)
    assert result.parent.completed_count() == 0
    shop.answer(first, 0)
    assert got(first) == 1
    assert (seen["both [1, 2]"], result.parent.completed_count(), second.ready()) == (0, 1, False)
    shop.answer(second, 0)
    assert got(result) == 3
    assert seen["both [1, 2]"] == 1


# --- members that do not ---------------------------------------------------------------------------------


@task(supervise=Options(lost_attempts=1))
def waits(self: SupervisedTask, how: str) -> None:
    """Waits for its end."""
    if how == "fails":
        raise Broken("no")
    if how == "is lost":
        lapse(str(self.request.id))
        self.step("lost", lambda: None)
    self.ask("end", "Which end?", choices=["none"])


def is_cancelled(shop: Site, result: AsyncResult) -> None:
    shop.parked(result)
    shop.supervise.cancel(result.id, actor="user:ann")


def expires(shop: Site, result: AsyncResult) -> None:
    """Let its question run out."""
    shop.parked(result)
    with shop.runtime.engines().begin() as connection:
        connection.exec_driver_sql(
            "UPDATE supervise.jobs SET wait_until = clock_timestamp() - interval '1 s' WHERE id = %(id)s",
            {"id": result.id},
        )
    shop.runtime.sweeper._move(Pass(EXPIRY), [str(result.id)])


def is_revoked(shop: Site, result: AsyncResult) -> None:
    """By Celery's own command, while it waits."""
    shop.parked(result)
    result.revoke()


def nothing(_shop: Site, _result: AsyncResult) -> None:
    """It ends by itself."""


ENDS: dict[str, tuple[Callable[[Site, AsyncResult], None], State, type[Exception], int]] = {
    "fails": (nothing, State.FAILED, Broken, 1),
    "is lost": (nothing, State.FAILED, JobLost, 1),
    "expires": (expires, State.EXPIRED, JobExpired, 1),
    "is cancelled": (is_cancelled, State.CANCELLED, TaskRevokedError, 0),
    "is revoked": (is_revoked, State.CANCELLED, TaskRevokedError, 0),
}
"""What is done to a member, its state, what `get` raises, how often errbacks are called: as Celery does it."""


@pytest.mark.parametrize("how", ENDS)
def test_s24_a_member_that_does_not_complete(shop: Site, how: str) -> None:
    """Nothing that follows runs; its chord is told, and errbacks run once, as Celery does it.

    Which does not tell what comes after a revoked task in a chain, also where that is a member of a chord (5.4-5.7).
    """
    _, _, error, alarms = ENDS[how]
    results = [
        waits.apply_async((how,), link=note.s("never"), link_error=alarm("alone")),
        chain(waits.si(how).on_error(alarm("chain")), note.si(0, "never"))(),
        chord([note.si(1, "other"), waits.si(how)], total.s("never").on_error(alarm("body")))(),
        chord([chain(waits.si(how), note.si(1, "never")), note.si(2, "other")], total.s("never"))(),
        group(waits.si(how), note.si(3, "other"))(),
    ]
    all_end(shop, how, fresh(shop, waits.name, len(results)))
    for result, told in zip(results, (error, error, ChordError, ChordError, error), strict=True):
        if alarms or result not in {results[1], results[3]}:
            with pytest.raises(told):
                got(last(result))
    assert {results[1].state, results[3].state} == {"FAILURE" if alarms else "PENDING"}
    wait_for(lambda: [seen[f"alarm {name}"] for name in ("alone", "chain", "body")] == [alarms, alarms, 1])
    assert not [line for line in seen if line.startswith("never")]


def last(result: Any) -> Any:
    """A result without its members, whose errors Celery would raise first."""
    return app.AsyncResult(result.id) if isinstance(result, AsyncResult) else result


def all_end(shop: Site, how: str, members: list[AsyncResult]) -> None:
    """End them all, and see how each is told."""
    end, state, error, _ = ENDS[how]
    for member in members:
        end(shop, member)
    for member in members:
        shop.wait(member, state)
        with pytest.raises(error):
            got(member)
        assert member.state == ("REVOKED" if state is State.CANCELLED else "FAILURE")
    shop.settled(*members)


@pytest.mark.parametrize(
    ("options", "end", "state"),
    [
        ({"countdown": 3600, "expires": 0.1}, nothing, State.EXPIRED),
        ({"countdown": 3600, "supervise": {"deadline": timedelta(seconds=0.1)}}, nothing, State.EXPIRED),
        ({"countdown": 3600}, lambda shop, result: shop.supervise.cancel(result.id, actor="user:ann"), State.CANCELLED),
    ],
    ids=["expires", "deadline", "cancelled"],
)
def test_a_member_that_never_starts(shop: Site, options: Any, end: Any, state: State) -> None:
    """Nobody's message ever comes: the chord is told all the same."""
    result = chord([note.si(1, "other"), lives.si("just runs").set(**options)], total.s("never"))()
    member = result.parent.results[1]
    end(shop, member)
    shop.wait(member, state)
    with pytest.raises(ChordError):
        got(app.AsyncResult(result.id))
    assert shop.job(member).attempts == 0


# --- duplicates ------------------------------------------------------------------------------------------


def message_of(shop: Site, result: AsyncResult, attempt: int, kind: MessageKind = MessageKind.RUN) -> Message:
    """The message that began an attempt."""
    job = shop.job(result)
    envelope = queries.payload(shop.runtime.door, job.id, "envelope")
    assert envelope is not None
    ticket = shop.supervise.attempts(job.id)[attempt].ticket_id
    return Message(ticket, kind, job.id, job.task, job.queue, envelope, job.state)


def test_s24_copies_do_not_advance_a_chord(shop: Site, caplog: pytest.LogCaptureFixture) -> None:
    """Messages of a member that come again, while it waits and after it has returned, count for nothing."""
    result = chord([lives.si("asks", 1), lives.si("asks", 2), lives.si("just runs", 4)], total.s("copies"))()
    first, second, third = result.parent.results
    shop.parked(second)
    shop.answer(first, 0)
    assert (got(first), got(third)) == (1, 4)
    shop.settled(first, third)
    copies = [message_of(shop, first, 0), message_of(shop, first, 1), message_of(shop, third, 0)] * 2
    with caplog.at_level("INFO", "celery_supervise.runner"):
        for copied in (*copies, message_of(shop, second, 0)):
            shop.runtime.publisher.publish(copied)
        wait_for(lambda: caplog.text.count("supervise.dropped") == 7, what="the copies' ends")
    assert (result.parent.completed_count(), seen["copies [1, 2, 4]"]) == (2, 0)
    shop.answer(second, 0)
    assert got(result) == 7
    assert seen["copies [1, 2, 4]"] == 1

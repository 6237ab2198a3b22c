"""Operations on many jobs: chosen and shown first, done one by one, each with its own outcome; nothing by mistake."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
import sqlalchemy as sa

from celery_supervise.bulk import Choice, Outcome, Target
from celery_supervise.errors import Conflict, DatabaseUnavailable, InvalidInput, JobNotFound
from celery_supervise.lifecycle import State
from celery_supervise.model import Moved
from tests.postgres.looking import backdate, everything, execute
from tests.postgres.operations import told
from tests.postgres.races import Call, row_held, waiter
from tests.postgres.shop import Shop

ANN = "user:ann"


def ids(choice: Choice) -> list[str]:
    """Which jobs were chosen."""
    return [target.job_id for target in choice.targets]


# --- choosing --------------------------------------------------------------------------------------------


def test_a_choice_names_jobs_and_generations(shop: Shop) -> None:
    """Oldest first, as they are now, with how many there are in all; and changes nothing."""
    jobs = [shop.pending().id, shop.running().lease.job_id, shop.paused().id]
    before = [everything(shop, job_id) for job_id in jobs]
    choice = shop.supervisor.choose("cancel", everything=True, limit=2)
    assert choice == Choice(
        [Target(jobs[0], 1, State.PENDING, "shop.task"), Target(jobs[1], 2, State.RUNNING, "shop.task")], 3
    )
    assert [everything(shop, job_id) for job_id in jobs] == before


def test_filters_leave_out_the_others(shop: Shop, open_shop: Callable[..., Shop]) -> None:
    """Task, owner, state, queue and stop reason, whole or by its kind, apart and together; of one namespace."""
    plain = shop.pending().id
    other = shop.pending(task="shop.other", owner_id="acme", queue="batch").id
    paused, asked = shop.paused(owner_id="acme").id, shop.job_of(shop.asked()).id
    open_shop(namespace="second").pending(owner_id="acme")

    def chosen(**filters: Any) -> list[str]:
        return ids(shop.supervisor.choose("cancel", **filters))

    assert chosen(task="shop.other") == chosen(queue="batch") == [other]
    assert chosen(owner="acme") == [other, paused]
    assert chosen(owner="acme", states=[State.PARKED]) == [paused]
    assert chosen(states=[State.PENDING]) == [plain, other]
    assert chosen(reason="user_paused") == [paused]
    assert chosen(reason="awaiting_user_answer") == chosen(reason="awaiting_user_answer:approve") == [asked]
    assert chosen(reason="awaiting_user_answer:other") == []
    assert chosen(everything=True) == [plain, other, paused, asked]


def test_only_jobs_on_which_it_would_do_something(shop: Shop) -> None:
    """What has ended, is cancelling, pausing or paused already, or cannot be resumed, is not chosen."""
    pending, running = shop.pending().id, shop.running().lease.job_id
    cancelling, pausing = shop.running().lease.job_id, shop.pending().id
    shop.supervisor.cancel(cancelling, actor=ANN)
    shop.supervisor.pause(pausing, actor=ANN)
    paused, asked = shop.paused().id, shop.job_of(shop.asked()).id
    shop.ended(State.COMPLETED)

    def chosen(action: str) -> set[str]:
        return set(ids(shop.supervisor.choose(action, everything=True)))

    assert chosen("cancel") == {pending, running, pausing, paused, asked}
    assert chosen("pause") == {pending, running, cancelling, asked}
    assert chosen("resume") == {pausing, paused}


@pytest.mark.parametrize("action", ["cancel", "pause", "resume"])
def test_what_is_chosen_is_done(shop: Shop, action: str) -> None:
    """Every job that the choice shows is moved by the operation, whatever state it is in."""
    shop.pending()
    shop.running()
    shop.asked()
    shop.paused()
    shop.supervisor.pause(shop.running().lease.job_id, actor=ANN)
    choice = shop.supervisor.choose(action, everything=True)
    outcomes = getattr(shop.supervisor, f"{action}_each")(choice.targets, actor=ANN)
    assert len(outcomes) == len(choice.targets) > 0
    assert all(one.moved is not None and one.moved.changed for one in outcomes)
    assert shop.supervisor.choose(action, everything=True) == Choice([], 0)


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"everything": True, "task": "shop.task"},
        {"everything": True, "states": [State.PENDING]},
        {"owner": "a\0b"},
        {"owner": 7},
        {"task": "t", "limit": 0},
        {"action": "explode", "task": "t"},
    ],
)
def test_a_choice_of_nothing_in_particular_is_refused(shop: Shop, given: dict[str, Any]) -> None:
    """Nobody cancels everything by leaving something out, nor by a filter that cannot be one."""
    with pytest.raises(InvalidInput):
        shop.supervisor.choose(**{"action": "cancel", **given})


def test_what_can_be_extended_or_run_again(shop: Shop) -> None:
    """Jobs with a deadline that is not over; jobs that ended otherwise than well, once, with their values."""
    shop.pending()
    timed, late = (shop.pending(deadline=timedelta(hours=1)).id for _ in range(2))
    backdate(shop, late, "expires_at")
    failed, again, done = (shop.ended(state).id for state in (State.FAILED, State.FAILED, State.COMPLETED))
    erased = told(shop).job_id
    shop.supervisor.erase(erased, actor=ANN)
    execute(shop, "UPDATE supervise.jobs SET rerun_of = :id WHERE id = :timed", id=again, timed=timed)
    assert ids(shop.supervisor.choose("extend", everything=True)) == [timed]
    assert ids(shop.supervisor.choose("rerun", everything=True)) == [failed]
    assert ids(shop.supervisor.choose("rerun", states=[State.COMPLETED])) == [done]


def test_extend_of_many(shop: Shop) -> None:
    """Each gets more time; what cannot be used is refused before the first."""
    jobs = [shop.pending(name, deadline=timedelta(hours=1)) for name in "ab"]
    targets = shop.supervisor.choose("extend", everything=True).targets
    outcomes = shop.supervisor.extend_each(targets, by=timedelta(hours=1), actor=ANN)
    assert [one.error for one in outcomes] == [None, None]
    for job in jobs:
        assert job.deadline is not None
        assert shop.job(job.id).deadline == job.deadline + timedelta(hours=1)
    with pytest.raises(InvalidInput):
        shop.supervisor.extend_each([], actor=ANN)


# --- doing -----------------------------------------------------------------------------------------------


def test_each_has_its_outcome(shop: Shop) -> None:
    """What changed since it was shown, ended or is not there is told as such, and keeps no other."""
    moves, changed, ended = shop.pending("a").id, shop.pending("b").id, shop.pending("c").id
    choice = shop.supervisor.choose("cancel", everything=True)
    shop.hold(changed)
    shop.hold(ended).complete(None)
    targets = [*reversed(choice.targets), Target("d", None)]
    outcomes = shop.supervisor.cancel_each(targets, actor=ANN, why="wrong file")
    assert [one.job_id for one in outcomes] == [moves, changed, ended, "d"]
    assert outcomes[0].moved is not None
    assert outcomes[0].moved.state is State.CANCELLED
    assert [type(one.error) for one in outcomes] == [type(None), Conflict, Conflict, JobNotFound]
    assert [getattr(one.error, "code", None) for one in outcomes[1:3]] == ["stale_generation", "stale_generation"]
    assert [shop.job(job_id).state for job_id in (moves, changed, ended)] == [
        State.CANCELLED,
        State.RUNNING,
        State.COMPLETED,
    ]


def test_without_a_generation_it_is_done_anyway(shop: Shop) -> None:
    """A caller who names jobs without having looked at them means them as they are."""
    job_id = shop.running().lease.job_id
    (outcome,) = shop.supervisor.pause_each([Target(job_id, None)], actor=ANN)
    assert isinstance(outcome.moved, Moved)
    assert outcome.moved.pause_requested


def test_each_is_a_transaction_of_its_own(shop: Shop) -> None:
    """While one waits for a row that somebody holds, those before it are done, and those after it are free."""
    first, second, third = (shop.pending(name).id for name in "abc")
    choice = shop.supervisor.choose("cancel", everything=True)
    with row_held(shop.engine, "jobs", "id", second) as gate:
        call = Call(lambda: shop.supervisor.cancel_each(choice.targets, actor=ANN))
        waiter(shop.engine, gate)
        assert [shop.job(job_id).state for job_id in (first, third)] == [State.CANCELLED, State.PENDING]
        shop.hold(third)
    outcomes = call.outcome()
    assert [one.error is None for one in outcomes] == [True, True, False]


def test_two_on_the_same_jobs(shop: Shop) -> None:
    """Two people at once, in whatever order they name them: each job is cancelled once, and nobody waits for ever."""
    for _ in range(10):
        shop.pending()
    targets = [Target(target.job_id, None) for target in shop.supervisor.choose("cancel", everything=True).targets]
    calls = [Call(partial(shop.supervisor.cancel_each, order, actor=ANN)) for order in (targets, targets[::-1])]
    outcomes = [one for call in calls for one in call.outcome()]
    assert len(outcomes) == 20
    assert sum(one.moved is not None and one.moved.changed for one in outcomes) == 10
    assert all(shop.job(target.job_id).state is State.CANCELLED for target in targets)


def test_what_is_resumed_is_sent(shop: Shop) -> None:
    """Each that goes on gets its message, at once."""
    jobs = {shop.paused().id for _ in range(3)}
    shop.broker.flush()
    shop.supervisor.resume_each(shop.supervisor.choose("resume", everything=True).targets, actor=ANN)
    assert {message.job_id for message in shop.broker.messages} == jobs


def test_a_database_that_goes_away_ends_it(shop: Shop) -> None:
    """What was done is told, what was being done is told, and the rest is said not to have been tried."""
    jobs = [shop.pending(name).id for name in "abc"]

    def act(target: Target) -> Moved:
        if target.job_id == "b":
            raise DatabaseUnavailable("gone")
        return shop.supervisor.cancel(target.job_id, actor=ANN)

    outcomes = shop.supervisor.each([Target(job_id, None) for job_id in jobs], act)
    assert [(one.moved is not None, one.tried) for one in outcomes] == [(True, True), (False, True), (False, False)]
    assert shop.job("c").state is State.PENDING


@pytest.mark.parametrize("given", [{"actor": ""}, {"actor": ANN, "why": "a\0b"}])
def test_what_cannot_be_used_is_refused_before_the_first(shop: Shop, given: dict[str, Any]) -> None:
    """Not job by job."""
    job = shop.pending()
    with pytest.raises(InvalidInput):
        shop.supervisor.cancel_each([Target(job.id, None)], **given)
    with pytest.raises(InvalidInput):
        shop.supervisor.cancel_each([], **given)
    assert shop.job(job.id).state is State.PENDING


@pytest.mark.parametrize("targets", [None, 5, "id", ["id"], [None], [Target("id", 1), "id"], [Target(5, 1)]], ids=repr)  # type: ignore[arg-type]  # that is the point
def test_what_are_no_targets(shop: Shop, targets: Any) -> None:
    """Ids alone, say: refused before the first is touched."""
    with pytest.raises(InvalidInput, match="targets"):
        shop.supervisor.cancel_each(targets, actor="user:ann")


def test_nothing_to_do(shop: Shop) -> None:
    """No targets, no outcomes, no statements."""
    statements: list[object] = []
    sa.event.listen(shop.engine, "before_cursor_execute", lambda *given: statements.append(given[2]))
    assert shop.supervisor.cancel_each([], actor=ANN) == []
    assert statements == []


def test_of_another_owner(shop: Shop) -> None:
    """A caller who may only touch their own is told of others' as of such that do not exist."""
    job = shop.pending(owner_id="ann")
    (outcome,) = shop.supervisor.cancel_each([Target(job.id, 1)], actor=ANN, owner="bob")
    assert isinstance(outcome, Outcome)
    assert isinstance(outcome.error, JobNotFound)


def test_a_thousand(shop: Shop) -> None:
    """A choice and its doing stay bounded: one statement to choose, one transaction a job."""
    for _ in range(50):
        shop.pending()
    counted: list[str] = []
    sa.event.listen(shop.engine, "before_cursor_execute", lambda *given: counted.append(given[2]))
    choice = shop.supervisor.choose("pause", everything=True)
    shop.supervisor.pause_each(choice.targets, actor=ANN)
    assert len(counted) == 51


def test_ages_do_not_matter_to_a_filter(shop: Shop) -> None:
    """A job that waits for its time is chosen like any other."""
    job = shop.pending(due=timedelta(hours=1))
    assert ids(shop.supervisor.choose("cancel", task="shop.task")) == [job.id]

"""A person runs an ended job again: a new job, once, from the start or from what the old one had decided."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest
import sqlalchemy as sa

from celery_supervise import queries
from celery_supervise.errors import AlreadyRerun, ConfigError, Conflict, JobNotFound, QuestionClosed
from celery_supervise.lifecycle import TERMINAL, State
from celery_supervise.model import Lease, NodeKind, Submitted
from celery_supervise.supervisor import Supervisor
from tests.postgres.looking import everything, last_entry, row, rows, unchanged, watching
from tests.postgres.races import at_once, in_order
from tests.postgres.shop import Shop, failure, new_question, stored

HOUR = timedelta(hours=1)
ANN = "user:ann"


def failed(shop: Shop, **changes: object) -> str:
    """A job that was answered, passed a checkpoint, and failed."""
    holding, question = shop.running(**changes), new_question()
    job_id = holding.lease.job_id
    holding.ask(question, ttl=HOUR)
    shop.supervisor.answer(question.id, value=True, actor="user:bob")
    again = shop.hold(job_id)
    again.checkpoint("load", NodeKind.STEP, stored("[1, 2]"))
    again.checkpoint("pay", NodeKind.EACH, stored("7"))
    again.fail(failure())
    return job_id


def test_an_answer_that_several_gave_is_taken_along_with_their_votes(shop: Shop) -> None:
    """So that nothing says that one person decided what needed two (an invariant says so)."""
    holding, question = shop.running(), new_question(approvals=2)
    holding.ask(question, ttl=HOUR)
    for actor in ("user:bob", "user:carl"):
        shop.supervisor.answer(question.id, value=True, actor=actor)
    shop.hold(holding.lease.job_id).fail(failure())
    made = shop.supervisor.rerun(holding.lease.job_id, actor=ANN, from_checkpoints=True)
    (copied,) = shop.supervisor.questions(job_id=made.job_id)
    assert (copied.status, copied.voted) == ("answered", ("bob", "carl"))


@pytest.mark.parametrize("state", sorted(TERMINAL))
def test_an_ended_job_is_run_again_as_a_new_one(shop: Shop, state: State) -> None:
    """Whatever it ended as: the new job waits for a worker, the old one stays as it is; both logs say so."""
    old = shop.ended(state, owner_id="acme", queue="slow", priority=3, input_version="7", deadline=HOUR)
    before = row(shop, old.id)
    with watching(shop, old.id) as seen:
        made = shop.supervisor.rerun(old.id, actor=ANN)
    assert (made.state, made.generation, made.created) == (State.PENDING, 1, True)
    new = shop.job(made.job_id)
    same = ("task", "owner_id", "queue", "input_version", "task_version", "namespace")
    assert {name: getattr(new, name) for name in same} == {name: getattr(old, name) for name in same}
    assert (new.rerun_of, new.attempts, new.run_id != old.run_id) == (old.id, 0, True)
    assert row(shop, old.id) == {**before, "log_seq": before["log_seq"] + 1}
    assert (seen.events, seen.entries[0].actor, seen.entries[0].data["job"]) == (["rerun"], ANN, new.id)
    entry = last_entry(shop, new.id)
    assert (entry.event, entry.actor, entry.data["rerun_of"]) == ("submitted", ANN, old.id)
    assert shop.supervisor.successor(old.id) == new.id
    assert shop.supervisor.successor(new.id) is None
    assert shop.broker.messages[-1].id == new.ticket_id
    assert isinstance(shop.claim(new.id), Lease)


def test_the_message_is_the_old_one_made_anew(shop: Shop) -> None:
    """With the new id; continuations only where they were asked for."""
    for with_callbacks in (False, True):
        old = shop.ended(State.FAILED)
        made = shop.supervisor.rerun(old.id, actor=ANN, with_callbacks=with_callbacks)
        envelope = queries.payload(shop.door, made.job_id, "envelope")
        assert envelope == shop.broker.messages[-1].envelope
        assert envelope is not None
        assert json.loads(envelope.data) == {
            "old": "{}",
            "for": made.job_id,
            "with_callbacks": with_callbacks,
            "completed": False,
        }


def test_from_the_start_nothing_is_remembered(shop: Shop) -> None:
    """No checkpoint, no answer: everything is done and asked again."""
    made = shop.supervisor.rerun(failed(shop), actor=ANN)
    assert rows(shop, "checkpoints", made.job_id) == rows(shop, "questions", made.job_id) == []
    assert (shop.job(made.job_id).node, shop.job(made.job_id).progress_seq) == (None, 0)


def test_from_the_checkpoints_all_decisions_hold(shop: Shop) -> None:
    """Checkpoints and answers are copied, in their order; the next one comes after them. The old ones stay."""
    old = failed(shop)
    before = everything(shop, old)
    made = shop.supervisor.rerun(old, actor=ANN, from_checkpoints=True)
    holding = shop.hold(made.job_id)
    run = holding.lease.run_id
    assert list(queries.nodes(shop.door, made.job_id, run)) == ["load", "pay"]
    assert queries.values(shop.door, made.job_id, run, ["load"]) == {"load": stored("[1, 2]")}
    (answer,) = shop.supervisor.answers(made.job_id).values()
    assert (answer.key, answer.actor, shop.supervisor.value_of(answer)) == ("approve", "user:bob", True)
    holding.checkpoint("after", NodeKind.STEP, stored("1"))
    assert list(queries.nodes(shop.door, made.job_id, run)) == ["load", "pay", "after"]
    assert last_entry(shop, old).data == {"job": made.job_id, "from_checkpoints": True, "with_callbacks": False}
    first = next(queries.entries(shop.door, made.job_id))
    assert (first.data["checkpoints"], first.data["answers"]) == (2, 1)
    after = everything(shop, old)
    assert {name: after[name] for name in ("checkpoints", "questions", "payloads", "attempts")} == {
        name: before[name] for name in ("checkpoints", "questions", "payloads", "attempts")
    }
    envelope = queries.payload(shop.door, made.job_id, "envelope")
    assert envelope is not None
    assert holding.lease.stored_bytes == len(envelope.data) + len("[1, 2]") + len("7")


def test_its_times_begin_again(shop: Shop) -> None:
    """As much time to its deadline, and as much running time, as the old one was given."""
    holding = shop.running(deadline=HOUR, max_active=HOUR / 2)
    holding.fail(failure())
    made = shop.supervisor.rerun(holding.lease.job_id, actor=ANN)
    new = row(shop, made.job_id)
    assert new["expires_at"] - new["created_at"] == HOUR
    assert new["active_left"] == HOUR / 2


def test_it_is_run_again_once(shop: Shop) -> None:
    """The second one is told the successor; the successor can be run again when it has ended."""
    old = shop.ended(State.FAILED)
    made = shop.supervisor.rerun(old.id, actor=ANN)
    with unchanged(shop, old.id), pytest.raises(AlreadyRerun) as refused:
        shop.supervisor.rerun(old.id, actor=ANN)
    assert (refused.value.code, refused.value.successor) == ("already_rerun", made.job_id)
    shop.hold(made.job_id).fail(failure())
    assert shop.supervisor.rerun(made.job_id, actor=ANN).created


def test_two_reruns_at_the_same_time(shop: Shop) -> None:
    """One waited for the other, and is told the successor: there is one."""
    old = shop.ended(State.CANCELLED)

    def again() -> object:
        return shop.supervisor.rerun(old.id, actor=ANN)

    first, second = in_order(shop.engine, old.id, again, again)
    assert isinstance(first, Submitted)
    assert isinstance(second, AlreadyRerun)
    assert second.successor == first.job_id


@pytest.mark.soak
def test_many_reruns_of_many_jobs(shop: Shop) -> None:
    """300 rounds of two at once: one new job each, and the loser always knows it."""
    for _ in range(300):
        old = shop.ended(State.FAILED)
        outcomes = at_once([lambda: shop.supervisor.rerun(old.id, actor=ANN)] * 2)  # noqa: B023 - run in this round
        (made,) = [one for one in outcomes if isinstance(one, Submitted)]
        (refused,) = [one for one in outcomes if isinstance(one, AlreadyRerun)]
        assert refused.successor == made.job_id


def test_a_job_that_goes_on_is_not_run_again(shop: Shop) -> None:
    """Only what has ended: the refusal says where the job is, and changes nothing."""
    job = shop.pending()
    with unchanged(shop, job.id), pytest.raises(Conflict) as refused:
        shop.supervisor.rerun(job.id, actor=ANN)
    assert (refused.value.code, refused.value.state) == ("not_final", State.PENDING)


def test_a_stale_client_runs_nothing_again(shop: Shop) -> None:
    """Whoever names a generation that is not the job's has looked at something else."""
    old = shop.ended(State.FAILED)
    with unchanged(shop, old.id), pytest.raises(Conflict) as refused:
        shop.supervisor.rerun(old.id, actor=ANN, expected_generation=old.generation - 1)
    assert refused.value.code == "stale_generation"
    assert shop.supervisor.rerun(old.id, actor=ANN, expected_generation=old.generation).created


def test_a_strangers_job_is_not_found(shop: Shop) -> None:
    """Foreign and absent look alike."""
    old = shop.ended(State.FAILED, owner_id="acme")
    with unchanged(shop, old.id):
        with pytest.raises(JobNotFound):
            shop.supervisor.rerun(old.id, actor=ANN, owner="other")
        with pytest.raises(JobNotFound):
            shop.supervisor.successor(old.id, owner="other")
    assert shop.supervisor.rerun(old.id, actor=ANN, owner="acme").created


def test_an_erased_job_cannot_be_run_again(shop: Shop) -> None:
    """Its arguments are gone; that is said before anything is written."""
    old = shop.ended(State.FAILED)
    with shop.engine.begin() as connection:
        connection.execute(sa.text("SELECT supervise.erase_job(:id, 'user:ann')"), {"id": old.id})
    with unchanged(shop, old.id), pytest.raises(Conflict) as refused:
        shop.supervisor.rerun(old.id, actor=ANN)
    assert refused.value.code == "erased"


def test_without_a_publisher_no_message_can_be_made(shop: Shop) -> None:
    """A service that cannot make messages says so."""
    old = shop.ended(State.FAILED)
    with unchanged(shop, old.id), pytest.raises(ConfigError):
        Supervisor(shop.door).rerun(old.id, actor=ANN)


def test_s32_an_answer_to_the_question_of_an_earlier_life(shop: Shop) -> None:
    """The job ended with its question open, was run again and asks the same: the old question takes no answer."""
    old = shop.asked(question=new_question(content=stored('{"prompt": "Pay 7?"}')))
    job_id = shop.job_of(old).id
    shop.supervisor.cancel(job_id, actor=ANN)
    made = shop.supervisor.rerun(job_id, actor=ANN)
    new = new_question(content=stored('{"prompt": "Pay 700?"}'), digest="other")
    shop.hold(made.job_id).ask(new, ttl=HOUR)
    with unchanged(shop, job_id), unchanged(shop, made.job_id), pytest.raises(QuestionClosed) as refused:
        shop.supervisor.answer(old.id, value=True, actor=ANN)
    assert (refused.value.code, refused.value.job_state) == ("already_final", State.CANCELLED)
    assert shop.supervisor.question(new.id).status == "pending"
    assert (shop.events(job_id).count("asked"), shop.events(made.job_id).count("asked")) == (1, 1)
    shop.supervisor.answer(new.id, value=False, actor=ANN)
    assert isinstance(shop.claim(made.job_id), Lease)

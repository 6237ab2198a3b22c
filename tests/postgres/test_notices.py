"""Who is to be told of a question, and reminders: rows of the outbox, written with the event, sent at least once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from celery_supervise.errors import Conflict, InvalidInput, PublishFailed, QuestionAsked
from celery_supervise.lifecycle import State
from celery_supervise.model import Message, MessageKind, NewQuestion
from celery_supervise.relay import Relay, Relayed
from celery_supervise.store.health import UNSENT
from tests.postgres.looking import backdate, execute, row, rows, unchanged, watching
from tests.postgres.races import Call, row_held
from tests.postgres.shop import Broker, Shop, new_question
from tests.postgres.test_journal import journal

HOUR = timedelta(hours=1)
ANN = "user:ann"
TASK = "shop.tasks.notify"


@pytest.fixture
def shop(open_shop: Callable[..., Shop]) -> Shop:
    """A service that has somebody to tell."""
    return open_shop(notify=TASK, publish_hold=timedelta(0))


def asked(shop: Shop, **terms: Any) -> NewQuestion:
    """A question to two people, of a job that belongs to acme."""
    return shop.asked(question=new_question(to=("user:ann", "group:finance"), **terms), owner_id="acme")


def relay(shop: Shop) -> Relayed:
    """One pass of the relay."""
    return Relay(shop.door, shop.broker, settling=timedelta(0)).run_once()


def notices(shop: Shop, question: NewQuestion) -> list[dict[str, Any]]:
    """What the outbox has for the notification task, oldest first."""
    found = execute(
        shop,
        "SELECT data, queue FROM supervise.outbox WHERE job_id = :id AND kind = 'notify' ORDER BY created_at",
        id=shop.job_of(question).id,
    )
    assert all(one["data"]["task"] == TASK for one in found)
    return [one["data"]["notice"] for one in found]


def kinds(shop: Shop, question: NewQuestion) -> list[str]:
    """Of what it has told."""
    return [one["kind"] for one in notices(shop, question)]


def due(shop: Shop, question: NewQuestion) -> None:
    """Let the time of the reminder have come."""
    execute(
        shop,
        "UPDATE supervise.questions SET remind_at = clock_timestamp() - interval '1 s' WHERE id = :id",
        id=question.id,
    )


# --- what is told ----------------------------------------------------------------------------------------


def test_a_question_is_told_of_without_its_content(shop: Shop) -> None:
    """Names, the people and the time; nothing of what is asked, in the same commit as the question."""
    question = asked(shop)
    job = shop.job_of(question)
    (told,) = notices(shop, question)
    until = datetime.fromisoformat(told.pop("deadline"))
    assert told == {
        "kind": "asked",
        "job_id": job.id,
        "question_id": str(question.id),
        "key": "approve",
        "task": "shop.task",
        "owner": "acme",
        "assignees": ["user:ann", "group:finance"],
    }
    assert until == job.wait_until


def test_nobody_is_told_where_nobody_is_named(open_shop: Callable[..., Shop]) -> None:
    """Without the setting no row is written, whatever happens to the question."""
    shop = open_shop()
    cancelled, late, reminded = asked(shop), asked(shop), asked(shop, remind_before=HOUR / 2)
    shop.supervisor.cancel(shop.job_of(cancelled).id, actor=ANN)
    backdate(shop, shop.job_of(late).id, "wait_until")
    due(shop, reminded)
    shop.expire()
    shop.remind()
    assert [notices(shop, question) for question in (cancelled, late, reminded)] == [[], [], []]
    assert "reminded" in shop.events(shop.job_of(reminded).id)


def test_the_end_of_a_questions_time_is_told(shop: Shop) -> None:
    """By the sweep, by an answer that came too late, by the job's own deadline: once each."""
    swept, answered, job = asked(shop), asked(shop), asked(shop)
    for question, column in ((swept, "wait_until"), (answered, "wait_until"), (job, "expires_at")):
        backdate(shop, shop.job_of(question).id, column)
    with pytest.raises(Conflict):
        shop.supervisor.answer(answered.id, value=True, actor=ANN)
    shop.expire()
    shop.expire()
    for question in (swept, answered, job):
        told = notices(shop, question)
        assert [one["kind"] for one in told] == ["asked", "expired"]
        assert (told[1]["assignees"], told[1]["key"]) == (["user:ann", "group:finance"], "approve")


def test_a_cancelled_jobs_question_is_withdrawn(shop: Shop) -> None:
    """Whoever was asked hears that nobody waits for the answer any more."""
    question = asked(shop)
    shop.supervisor.cancel(shop.job_of(question).id, actor=ANN)
    assert kinds(shop, question) == ["asked", "withdrawn"]


def test_a_question_that_is_taken_back_is_withdrawn(shop: Shop) -> None:
    """By a person, with the job going on; one that came too late for that finds it expired, and so are they told."""
    taken, late, given = asked(shop), asked(shop), asked(shop)
    voted = shop.asked(question=new_question(approvals=2, to=("bob", "carl")))
    shop.supervisor.withdraw(taken.id, actor=ANN)
    assert kinds(shop, taken) == ["asked", "withdrawn"]
    acts: Mapping[UUID, Callable[[], object]] = {
        late.id: lambda: shop.supervisor.withdraw(late.id, actor=ANN),
        voted.id: lambda: shop.supervisor.answer(voted.id, value=True, actor="user:bob"),
        given.id: lambda: shop.supervisor.reassign(given.id, to="carl", actor=ANN),
    }
    for question in (late, voted, given):
        backdate(shop, shop.job_of(question).id, "wait_until")
        with pytest.raises(Conflict):
            acts[question.id]()
        assert kinds(shop, question) == ["asked", "expired"]


def test_who_is_given_a_question_is_asked(open_shop: Callable[..., Shop]) -> None:
    """All to whom it is put now, at once, with its own time; to the same people again tells nobody."""
    shop = open_shop(notify=TASK)
    question = asked(shop)
    shop.broker.flush()
    shop.supervisor.reassign(question.id, to=["bob", "carl"], actor="user:dora")
    first, told = notices(shop, question)
    assert (told["kind"], told["assignees"]) == ("asked", ["bob", "carl"])
    assert {name: told[name] for name in told if name != "assignees"} == {
        name: first[name] for name in first if name != "assignees"
    }
    (message,) = shop.broker.messages
    assert (message.kind, message.detail) == (MessageKind.NOTIFY, told)
    shop.supervisor.reassign(question.id, to=["carl", "bob"], actor="user:dora")
    assert kinds(shop, question) == ["asked", "asked"]
    assert relay(shop).published == 0


def test_who_is_given_a_question_is_told_by_the_relay(open_shop: Callable[..., Shop]) -> None:
    """Where it cannot be sent at once the row waits, as any notice does."""
    shop = open_shop(notify=TASK, broker=Unreachable(), publish_hold=timedelta(0))
    question = asked(shop)
    shop.supervisor.reassign(question.id, to="bob", actor="user:dora")
    assert kinds(shop, question) == ["asked", "asked"]
    shop.broker = Broker()
    assert relay(shop).published == 2
    assert [one.detail["assignees"] for one in shop.broker.messages] == [["user:ann", "group:finance"], ["bob"]]


def test_what_asks_nobody_tells_nobody(shop: Shop) -> None:
    """An answer in time, a cancel of a job that waits for nothing, an expiry of one: no notice."""
    question = asked(shop)
    shop.supervisor.answer(question.id, value=True, actor=ANN)
    paused, late = shop.paused(), shop.pending(deadline=HOUR)
    shop.supervisor.cancel(paused.id, actor=ANN)
    backdate(shop, late.id, "expires_at")
    shop.expire()
    assert kinds(shop, question) == ["asked"]
    found = execute(shop, "SELECT job_id FROM supervise.outbox WHERE kind = 'notify'")
    assert [one["job_id"] for one in found] == [shop.job_of(question).id]


# --- sending ---------------------------------------------------------------------------------------------


def test_the_asker_sends_it_at_once(shop: Shop, open_shop: Callable[..., Shop]) -> None:
    """The process that asked tells, after its commit; then the relay has nothing left to send."""
    shop = open_shop(notify=TASK)
    holding, question = shop.running(), new_question()
    book = journal(shop, holding)
    book._on_asked = shop.supervisor.publish_notice
    with pytest.raises(QuestionAsked):
        book.ask(question)
    (message,) = (one for one in shop.broker.messages if one.kind is MessageKind.NOTIFY)
    assert (message.id, message.task, message.detail["kind"]) == (question.id, TASK, "asked")
    assert message.detail == notices(shop, question)[0]
    assert relay(shop).published == 0


def test_the_relay_sends_what_was_not_sent(shop: Shop) -> None:
    """From the row, once; afterwards the row is done and counts as no message that a queue should have."""
    question = asked(shop)
    shop.broker.flush()
    assert relay(shop).published == 1
    (message,) = shop.broker.messages
    assert (message.kind, message.job_id, message.detail["kind"]) == (
        MessageKind.NOTIFY,
        shop.job_of(question).id,
        "asked",
    )
    assert relay(shop).published == 0
    assert [one["done_at"] is None for one in rows(shop, "outbox", message.job_id) if one["kind"] == "notify"] == [
        False
    ]


class Unreachable(Broker):
    """A broker that takes no notice; all else it does."""

    def publish(self, message: Message) -> None:
        """Refuse a notice."""
        if message.kind is MessageKind.NOTIFY:
            raise PublishFailed("no way to shop.tasks.notify")
        super().publish(message)


def test_s30_whoever_is_to_be_notified_cannot_be_reached(open_shop: Callable[..., Shop]) -> None:
    """The job is parked and can be answered; the notice waits in its row, says why, and is tried again later."""
    shop = open_shop(notify=TASK, broker=Unreachable(), publish_hold=timedelta(0))
    holding, question = shop.running(), new_question()
    book = journal(shop, holding)
    book._on_asked = shop.supervisor.publish_notice
    with pytest.raises(QuestionAsked):
        book.ask(question)
    job_id = holding.lease.job_id
    assert (relay(shop).published, shop.job(job_id).state) == (0, State.PARKED)
    (waiting,) = (one for one in rows(shop, "outbox", job_id) if one["kind"] == "notify")
    assert (waiting["published_at"], waiting["last_error"]) == (None, "no way to shop.tasks.notify")
    found = shop.door.one(UNSENT, after=timedelta(0))
    assert found is not None
    assert (found["messages"], found["error"]) == (1, "no way to shop.tasks.notify")  # `doctor` says so
    assert shop.supervisor.answer(question.id, value=True, actor=ANN).changed
    assert shop.hold(job_id).complete(None).state is State.COMPLETED
    shop.broker = Broker()
    assert relay(shop).published == 1
    assert shop.broker.messages[0].detail["kind"] == "asked"


def test_a_notice_outlives_its_job(shop: Shop) -> None:
    """A job that has ended, been told and erased still has its last notice sent; prune waits for it."""
    question = asked(shop)
    job_id = shop.job_of(question).id
    backdate(shop, job_id, "wait_until")
    shop.expire()
    execute(shop, "DELETE FROM supervise.outbox WHERE kind = 'notify' AND data -> 'notice' ->> 'kind' = 'asked'")
    execute(shop, "UPDATE supervise.outbox SET publish_until = now() + interval '1 h' WHERE kind = 'notify'")
    relay(shop)
    execute(shop, "SELECT supervise.erase_job(:id, 'user:ann')", id=job_id)
    execute(shop, "UPDATE supervise.outbox SET publish_until = NULL WHERE kind = 'notify'")
    shop.broker.flush()
    relay(shop)
    assert [one.detail["kind"] for one in shop.broker.messages] == ["expired"]


# --- reminders -------------------------------------------------------------------------------------------


def test_a_reminder_is_sent_once(shop: Shop) -> None:
    """When its time has come it is logged and told, and never again; it is no change, and no answer."""
    question = asked(shop, remind_before=HOUR / 2)
    job_id = shop.job_of(question).id
    with unchanged(shop, job_id):
        assert shop.remind().moved == []
    due(shop, question)
    with watching(shop, job_id) as seen:
        (moved,) = shop.remind().moved
    assert (moved.job_id, moved.state, seen.generation) == (job_id, State.PARKED, 0)
    assert (seen.events, seen.entries[0].actor) == (["reminded"], "sweep")
    assert (seen.entries[0].data["question"], seen.entries[0].data["key"]) == (str(question.id), "approve")
    assert kinds(shop, question) == ["asked", "reminder"]
    assert notices(shop, question)[1]["assignees"] == ["user:ann", "group:finance"]
    with unchanged(shop, job_id):
        assert shop.remind().moved == []
    assert shop.supervisor.question(question.id).status == "pending"
    assert row(shop, job_id)["question_id"] == question.id


@pytest.mark.parametrize("column", ["wait_until", "expires_at"])
def test_what_is_over_is_not_reminded_of(shop: Shop, column: str) -> None:
    """A sweep that comes too late reminds nobody: the time is over."""
    question = asked(shop, remind_before=HOUR / 2)
    due(shop, question)
    backdate(shop, shop.job_of(question).id, column)
    with unchanged(shop, shop.job_of(question).id):
        assert shop.remind().moved == []


def test_what_is_answered_is_not_reminded_of(shop: Shop) -> None:
    """An answer that was given in time leaves nothing to remind of."""
    question = asked(shop, remind_before=HOUR / 2)
    due(shop, question)
    shop.supervisor.answer(question.id, value=True, actor=ANN)
    with unchanged(shop, shop.job_of(question).id):
        assert shop.remind().moved == []


def test_more_time_is_another_end_to_remind_of(shop: Shop) -> None:
    """A question that is extended after its reminder reminds again, before the new end."""
    question = asked(shop, remind_before=HOUR / 2)
    due(shop, question)
    shop.remind()
    shop.supervisor.extend_question(question.id, by=HOUR, actor=ANN)
    assert shop.remind().moved == []
    due(shop, question)
    assert len(shop.remind().moved) == 1
    assert kinds(shop, question) == ["asked", "reminder", "reminder"]


def test_a_job_that_is_held_is_reminded_of_later(shop: Shop) -> None:
    """The sweep waits for nobody's lock, and takes the others; the next pass takes this one."""
    held, free = asked(shop, remind_before=HOUR / 2), asked(shop, remind_before=HOUR / 2)
    due(shop, held)
    due(shop, free)
    with row_held(shop.engine, "jobs", "id", shop.job_of(held).id):
        assert [moved.job_id for moved in Call(shop.remind).outcome().moved] == [shop.job_of(free).id]
    assert [moved.job_id for moved in shop.remind().moved] == [shop.job_of(held).id]


def test_other_namespaces_are_not_ours_to_remind(shop: Shop, open_shop: Callable[..., Shop]) -> None:
    """Each app reminds of its own questions."""
    other = open_shop(namespace="other", notify=TASK)
    question = asked(other, remind_before=HOUR / 2)
    due(other, question)
    assert shop.remind().moved == []
    assert len(other.remind().moved) == 1


def test_a_reminder_before_the_question_is_refused(shop: Shop) -> None:
    """Where the question's own time is the setting's, the reminder must lie within that."""
    holding = shop.running()
    with unchanged(shop, holding.lease.job_id), pytest.raises(InvalidInput) as refused:
        journal(shop, holding).ask(new_question(remind_before=HOUR))
    assert refused.value.field == "remind_before"

"""The journal of a held job on Postgres: pages, asking, leaving, joining the body's own transaction."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
import sqlalchemy as sa
from pydantic import BaseModel, Field, field_validator
from sqlalchemy.engine import Connection

from celery_supervise import attempt as module
from celery_supervise.attempt import StoreJournal
from celery_supervise.body import Body
from celery_supervise.encodings import TYPED
from celery_supervise.errors import AttemptEnded, ControlFlow, InvalidInput, LeaseLost, QuestionAsked
from celery_supervise.holding import Holding
from celery_supervise.lifecycle import State
from celery_supervise.model import NewQuestion, NodeKind
from celery_supervise.store.leases import ask_hand_over
from tests.postgres.looking import execute, row, rows, watching
from tests.postgres.shop import Shop, new_question, retry, stored

HOUR = timedelta(hours=1)
ANN = "user:ann"


@dataclass
class Told:
    """What the journal told its worker."""

    parked: list[NewQuestion] = field(default_factory=list)
    tickets: list[tuple[str, UUID]] = field(default_factory=list)


def journal(shop: Shop, holding: Holding, told: Told | None = None) -> StoreJournal:
    """The journal of an attempt."""
    told = told or Told()
    return StoreJournal(
        shop.door,
        holding,
        question_ttl=HOUR,
        on_park=told.parked.append,
        on_ticket=lambda job_id, ticket: told.tickets.append((job_id, ticket)),
        pack=stored,
    )


@contextmanager
def counting(shop: Shop) -> Iterator[list[str]]:
    """The statements that are sent inside."""
    sent: list[str] = []

    def note(_connection: object, _cursor: object, statement: str, *_: object) -> None:
        sent.append(statement)

    sa.event.listen(shop.engine, "before_cursor_execute", note)
    try:
        yield sent
    finally:
        sa.event.remove(shop.engine, "before_cursor_execute", note)


def again(shop: Shop, holding: Holding) -> StoreJournal:
    """The job in another process: handed over and claimed anew."""
    holding.hand_over()
    return journal(shop, shop.hold(holding.lease.job_id))


def many(shop: Shop, holding: Holding, count: int, *, size: int = 1) -> None:
    """So many decided steps, without saving each by itself."""
    execute(
        shop,
        "INSERT INTO supervise.checkpoints (job_id, run_id, node, kind, position, data, encoding, size, attempt_token,"
        " saved_at, logged_at) SELECT :id, :run, 'n' || n, 'step', n, convert_to(repeat('7', :size), 'UTF8'),"
        " :encoding, :size, :token, now(), now() FROM generate_series(1, :count) AS n",
        id=holding.lease.job_id,
        run=holding.lease.run_id,
        token=holding.lease.token,
        count=count,
        size=size,
        encoding=TYPED,
    )


# --- nodes and values ------------------------------------------------------------------------------------


def test_what_is_saved_is_found_by_the_next_attempt(shop: Shop) -> None:
    """Names in the order in which they first came, values as they were, None where there was none."""
    holding = shop.running()
    first = journal(shop, holding)
    assert dict(first.nodes()) == {}
    first.save("load", NodeKind.STEP, stored("[1]"))
    first.save("here", NodeKind.CHECKPOINT, None)
    first.save("load", NodeKind.STEP, stored("[1, 2]"))
    assert list(first.nodes()) == ["load", "here"]
    second = again(shop, holding)
    assert second.run_id == first.run_id
    assert [(node.name, node.kind, node.size) for node in second.nodes().values()] == [
        ("load", NodeKind.STEP, 6),
        ("here", NodeKind.CHECKPOINT, 0),
    ]
    assert (second.read("load"), second.read("here")) == (stored("[1, 2]"), None)


def test_a_saved_node_is_read_as_saved(shop: Shop) -> None:
    """A node that was read and is saved again is read as it is now."""
    holding = shop.running()
    one = journal(shop, holding)
    one.save("a", NodeKind.EACH, stored("1"))
    one.save("b", NodeKind.EACH, stored("2"))
    two = again(shop, holding)
    assert two.nodes()
    assert two.read("a") == stored("1")
    two.save("b", NodeKind.EACH, stored("3"))
    assert two.read("b") == stored("3")
    assert two.nodes()["b"].size == 1


def test_ten_thousand_nodes_in_few_queries(shop: Shop) -> None:
    """A body that is entered again after 10,000 steps reads them all in at most 25 statements."""
    holding = shop.running()
    many(shop, holding, 10_000)
    body = Body(journal(shop, holding), job_id=holding.lease.job_id)
    with counting(shop) as sent:
        assert [body.step(f"n{number}", int) for number in range(1, 10_001)] == [7] * 10_000
    assert len(sent) <= 25


def test_a_page_is_bounded_in_bytes(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """Large values are read a few at a time: a re-entry does not load the whole job at once."""
    monkeypatch.setattr(module, "PAGE_BYTES", 1000)
    holding = shop.running()
    many(shop, holding, 20, size=300)
    again_here = journal(shop, holding)
    assert len(again_here.nodes()) == 20
    with counting(shop) as sent:
        for number in range(1, 21):
            assert again_here.read(f"n{number}") == stored_typed("7" * 300)
    assert len(sent) == 5


def stored_typed(text: str) -> object:
    """A value as `many` stored it."""
    value = stored(text)
    return type(value)(value.data, TYPED, None)


def test_s65_nodes_are_found_in_any_order(shop: Shop) -> None:
    """Steps that moved in the code are found by name, each with its own value."""
    holding = shop.running()
    one = journal(shop, holding)
    for name in "abcde":
        one.save(name, NodeKind.STEP, stored(f'"{name}"'))
    two = again(shop, holding)
    assert two.nodes()
    for name in "ebdac":
        assert two.read(name) == stored(f'"{name}"')


def test_a_loop_that_saves_seldom_is_told_to_hurry(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """When the last save is long ago, so that a pause or a hand-over is seen soon."""
    one = journal(shop, shop.running())
    assert not one.hurry()
    monkeypatch.setattr(module, "HURRY_AFTER", -1.0)
    assert one.hurry()


# --- leaving ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("what", "state"), [("pause", State.PARKED), ("cancel", State.CANCELLED)])
def test_a_save_at_which_the_job_leaves(shop: Shop, what: str, state: State) -> None:
    """The node is saved, the body is left by control flow, which says where the job is."""
    holding = shop.running()
    one = journal(shop, holding)
    getattr(shop.supervisor, what)(holding.lease.job_id, actor=ANN)
    with pytest.raises(AttemptEnded) as ended:
        one.save("last", NodeKind.STEP, stored("1"))
    assert ended.value.state == state
    assert [found["node"] for found in rows(shop, "checkpoints", holding.lease.job_id)] == ["last"]


def test_a_save_hands_over_when_the_worker_leaves(shop: Shop) -> None:
    """The node is saved, the job goes to another worker, its ticket is given to be sent at once."""
    holding, told = shop.running(), Told()
    one = journal(shop, holding, told)
    ask_hand_over(shop.door, shop.claimer.incarnation)
    with pytest.raises(AttemptEnded) as ended:
        one.save("last", NodeKind.STEP, stored("1"))
    assert ended.value.state == State.PENDING
    job = shop.job(holding.lease.job_id)
    assert told.tickets == [(job.id, job.ticket_id)]
    assert shop.events(job.id)[-2:] == ["checkpoint", "handed_over"]


def test_control_flow_is_not_swallowed(shop: Shop) -> None:
    """`except Exception` in a body does not catch a lost lease, a pause or a question."""
    holding = shop.running()
    shop.reap_now(holding.lease.job_id)
    with pytest.raises(LeaseLost) as lost:
        journal(shop, holding).save("late", NodeKind.STEP, None)
    assert not isinstance(lost.value, Exception)
    assert isinstance(lost.value, ControlFlow)


def test_progress_is_passed_on(shop: Shop) -> None:
    """Numbers for people; refused where the attempt is over."""
    holding = shop.running()
    one = journal(shop, holding)
    one.progress(1, 3, "one of three")
    assert shop.job(holding.lease.job_id).progress_message == "one of three"
    shop.reap_now(holding.lease.job_id)
    with pytest.raises(LeaseLost):
        one.progress(2, 3, None)


# --- asking ----------------------------------------------------------------------------------------------


def test_a_question_parks_and_its_answer_is_found(shop: Shop) -> None:
    """The worker is told before the commit; the body is left; the next attempt finds the answer."""
    holding, told, question = shop.running(), Told(), new_question()
    with pytest.raises(QuestionAsked) as asked:
        journal(shop, holding, told).ask(question)
    assert asked.value.question_id == str(question.id)
    assert told.parked == [question]
    job = shop.job(holding.lease.job_id)
    assert (job.state, job.question_id) == (State.PARKED, question.id)
    shop.supervisor.answer(question.id, value=True, actor=ANN)
    answer = journal(shop, shop.hold(job.id)).answer("approve")
    assert answer is not None
    assert (answer.value, answer.actor, answer.digest) == (stored("true"), ANN, question.digest)


@pytest.mark.parametrize(("given", "expected"), [(None, HOUR), (timedelta(days=2), timedelta(days=2))])
def test_a_question_has_its_own_time_or_the_apps(shop: Shop, given: timedelta | None, expected: timedelta) -> None:
    """`ttl` where it is given, else the setting."""
    holding, question = shop.running(), new_question(ttl=given)
    with pytest.raises(QuestionAsked):
        journal(shop, holding).ask(question)
    found = shop.supervisor.question(question.id)
    assert found.expires_at - found.asked_at == expected


def test_a_question_asked_anew_replaces_its_answer(shop: Shop) -> None:
    """The old answer is superseded in the same commit, and found no more, by this attempt nor by the next."""
    holding, old, new = shop.running(), new_question(), new_question(digest="other")
    with pytest.raises(QuestionAsked):
        journal(shop, holding).ask(old)
    shop.supervisor.answer(old.id, value=True, actor=ANN)
    job_id = holding.lease.job_id
    with pytest.raises(QuestionAsked):
        journal(shop, shop.hold(job_id)).ask(new)
    assert shop.supervisor.question(old.id).status == "superseded"
    shop.supervisor.answer(new.id, value=False, actor="user:bob")
    answer = journal(shop, shop.hold(job_id)).answer("approve")
    assert answer is not None
    assert (answer.question_id, answer.value) == (new.id, stored("false"))


class Amount(BaseModel):
    """A form as it was when the question was answered."""

    amount: int


class SmallAmount(BaseModel):
    """The same, to a person; the schema says nothing of this rule."""

    amount: int

    @field_validator("amount")
    @classmethod
    def small(cls, amount: int) -> int:
        """No more than five."""
        if amount > 5:
            raise ValueError("must be at most 5")
        return amount


class BoundedAmount(BaseModel):
    """The same, and the schema says so."""

    amount: int = Field(le=5)


@pytest.mark.parametrize("today", [SmallAmount, BoundedAmount])
def test_an_answer_that_todays_form_refuses_is_asked_for_again(shop: Shop, today: type[BaseModel]) -> None:
    """It was accepted, and the code has changed: the person is asked once more, and the job does not fail."""
    job_id = shop.pending().id

    def enter(form: type[BaseModel]) -> Any:
        return Body(journal(shop, shop.hold(job_id)), job_id=job_id).ask("amount", "How much?", form=form)

    for form, amount in ((Amount, 7), (today, 3)):
        with pytest.raises(QuestionAsked) as asked:
            enter(form)
        assert shop.job(job_id).stop_reason == "awaiting_user_answer:amount"
        shop.supervisor.answer(asked.value.question_id, {"amount": amount}, actor=ANN)
    assert enter(today) == today(amount=3)
    assert [one.status for one in shop.supervisor.questions(job_id=job_id)] == ["superseded", "answered"]
    assert shop.events(job_id).count("asked") == 2


def test_a_reminder_before_the_question_is_refused(shop: Shop) -> None:
    """Against the setting's time, too, where the question says none: an error, and nothing is asked."""
    holding = shop.running()
    with pytest.raises(InvalidInput, match="must be less than the question's time"):
        journal(shop, holding).ask(new_question(remind_before=timedelta(days=365)))
    assert (shop.job(holding.lease.job_id).state, shop.supervisor.questions()) == (State.RUNNING, [])


def test_a_pause_goes_before_a_question(shop: Shop) -> None:
    """The body is left as paused; the question is asked when it comes here again."""
    holding, question = shop.running(), new_question()
    shop.supervisor.pause(holding.lease.job_id, actor=ANN)
    with pytest.raises(AttemptEnded) as ended:
        journal(shop, holding).ask(question)
    assert (ended.value.state, ended.value.why) == (State.PARKED, "user_paused")
    assert not isinstance(ended.value, QuestionAsked)


def test_answers_are_of_one_run(shop: Shop) -> None:
    """A retry with other arguments finds no answer: what was approved is what runs."""
    question = shop.asked()
    job_id = shop.job_of(question).id
    shop.supervisor.answer(question.id, value=True, actor=ANN)
    shop.hold(job_id).retry(retry(digest="other"), None)
    assert journal(shop, shop.hold(job_id)).answer("approve") is None


def test_answers_and_nodes_are_read_once(shop: Shop) -> None:
    """However often a body looks, it costs one statement each."""
    holding = shop.running()
    many(shop, holding, 3)
    one = journal(shop, holding)
    with counting(shop) as sent:
        for _ in range(5):
            assert one.answer("approve") is None
            assert len(one.nodes()) == 3
    assert len(sent) == 2


# --- the body's own transaction --------------------------------------------------------------------------


@pytest.fixture
def block(shop: Shop, database_owner: sa.Engine) -> Callable[[], object]:
    """Opens the body's own transaction, which commits at its end and rolls back on any exception."""
    with database_owner.begin() as owner:
        owner.exec_driver_sql("CREATE TABLE effects (name text)")
        owner.exec_driver_sql("GRANT ALL ON effects TO PUBLIC")

    @contextmanager
    def opened() -> Iterator[Connection]:
        with shop.engine.begin() as connection:
            connection.exec_driver_sql("INSERT INTO effects VALUES ('paid')")
            yield connection

    return opened


def effects(shop: Shop) -> int:
    """How often the body's own effect was committed."""
    count: int = execute(shop, "SELECT count(*) AS n FROM effects")[0]["n"]
    return count


def test_effect_and_checkpoint_are_one_commit(shop: Shop, block: Callable[[], object]) -> None:
    """Both are there, or neither: the step never runs again after its effect."""
    holding = shop.running()
    one = journal(shop, holding)
    with one.transaction(block()):  # type: ignore[arg-type]  # a context manager of a connection
        one.save("pay", NodeKind.STEP, stored("1"))
        assert rows(shop, "checkpoints", holding.lease.job_id) == []
    assert (effects(shop), len(rows(shop, "checkpoints", holding.lease.job_id))) == (1, 1)
    one.save("next", NodeKind.STEP, None)
    assert shop.job(holding.lease.job_id).node == "next"


def undo(one: StoreJournal) -> None:
    """Save, then fail: all within one transaction."""
    one.save("pay", NodeKind.STEP, stored("1"))
    raise ZeroDivisionError


def test_an_error_in_the_block_undoes_both(shop: Shop, block: Callable[[], object]) -> None:
    """The body's own exception passes, the job runs on, the next save stands alone."""
    holding = shop.running()
    one = journal(shop, holding)
    with pytest.raises(ZeroDivisionError), one.transaction(block()):  # type: ignore[arg-type]  # as above
        undo(one)
    assert (effects(shop), rows(shop, "checkpoints", holding.lease.job_id)) == (0, [])
    one.save("other", NodeKind.STEP, None)
    assert shop.job(holding.lease.job_id).state is State.RUNNING


@pytest.mark.parametrize(("what", "state"), [("pause", State.PARKED), ("cancel", State.CANCELLED)])
def test_a_block_in_which_the_job_leaves(shop: Shop, block: Callable[[], object], what: str, state: State) -> None:
    """Effect and checkpoint are rolled back, then the job moves in a transaction of its own."""
    holding = shop.running()
    job_id = holding.lease.job_id
    one = journal(shop, holding)
    getattr(shop.supervisor, what)(job_id, actor=ANN)
    with (
        watching(shop, job_id) as seen,
        pytest.raises(AttemptEnded) as ended,
        one.transaction(block()),  # type: ignore[arg-type]  # as above
    ):
        one.save("pay", NodeKind.STEP, stored("1"))
    assert (ended.value.state, shop.job(job_id).state) == (state, state)
    assert (effects(shop), rows(shop, "checkpoints", job_id)) == (0, [])
    assert (seen.generation, len(seen.events)) == (1, 1)


def test_a_block_of_a_stale_attempt_commits_nothing(shop: Shop, block: Callable[[], object]) -> None:
    """The effect is rolled back with the refused checkpoint, and the refusal is logged, at once."""
    holding = shop.running()
    job_id = holding.lease.job_id
    one = journal(shop, holding)
    shop.reap_now(job_id)
    with (
        watching(shop, job_id) as seen,
        pytest.raises(LeaseLost),
        one.transaction(block()),  # type: ignore[arg-type]  # as above
    ):
        one.save("pay", NodeKind.STEP, stored("1"))
    assert (effects(shop), seen.events) == (0, ["refused"])


def test_a_block_after_which_the_worker_leaves(shop: Shop, block: Callable[[], object]) -> None:
    """What was done is committed, then the job is handed over."""
    holding, told = shop.running(), Told()
    one = journal(shop, holding, told)
    ask_hand_over(shop.door, shop.claimer.incarnation)
    with pytest.raises(AttemptEnded) as ended, one.transaction(block()):  # type: ignore[arg-type]  # as above
        one.save("pay", NodeKind.STEP, stored("1"))
    assert ended.value.state == State.PENDING
    assert (effects(shop), len(rows(shop, "checkpoints", holding.lease.job_id))) == (1, 1)
    assert len(told.tickets) == 1


def test_a_block_without_a_save(shop: Shop, block: Callable[[], object]) -> None:
    """A block that decides nothing is the body's own affair."""
    holding = shop.running()
    before = row(shop, holding.lease.job_id)
    with journal(shop, holding).transaction(block()):  # type: ignore[arg-type]  # as above
        pass
    assert (effects(shop), row(shop, holding.lease.job_id)) == (1, before)


def test_another_executor_equals_the_first(shop: Shop) -> None:
    """A process that has nothing but an engine and the job's id goes on where the first one stood."""
    holding = shop.running()
    journal(shop, holding).save("load", NodeKind.STEP, stored("[1]"))
    shop.lose(holding)
    other = Shop(shop.engine)
    resumed = journal(other, other.hold(holding.lease.job_id))
    assert resumed.read("load") == stored("[1]")
    resumed.save("rest", NodeKind.STEP, None)
    assert shop.job(holding.lease.job_id).node == "rest"
    assert uuid4() != resumed.run_id == holding.lease.run_id

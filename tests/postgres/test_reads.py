"""Reads: pages that say what they leave out, values as they were given, nothing of others, nothing changed."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
import sqlalchemy as sa

from celery_supervise import queries, results
from celery_supervise.errors import InvalidInput, JobNotFound
from celery_supervise.lifecycle import State
from celery_supervise.model import NodeKind
from celery_supervise.values import IDENTITY
from tests.postgres.looking import execute, unchanged
from tests.postgres.shop import Shop, new_question, stored

HOUR = timedelta(hours=1)
ANN = "user:ann"


# --- the log ---------------------------------------------------------------------------------------------


def long_log(shop: Shop, entries: int) -> str:
    """A job with so many entries in its log."""
    holding = shop.running()
    for number in range(entries - 2):
        holding.checkpoint(f"node {number}", NodeKind.STEP, None)
    return holding.lease.job_id


def test_a_page_of_the_log_says_what_it_withholds(shop: Shop) -> None:
    """The newest entries in chronological order, with exact counts of what there is and what is left out."""
    job_id = long_log(shop, 12)
    page = shop.supervisor.log(job_id, page=5)
    assert [entry.sequence_num for entry in page.entries] == [8, 9, 10, 11, 12]
    assert (page.returned_count, page.total_count, page.withheld_count, page.truncated) == (5, 12, 7, True)


def test_a_log_that_fits_withholds_nothing(shop: Shop) -> None:
    """`truncated` is false only where everything is there."""
    job_id = long_log(shop, 5)
    page = shop.supervisor.log(job_id, page=5)
    assert (page.returned_count, page.total_count, page.withheld_count, page.truncated) == (5, 5, 0, False)


def test_pages_follow_each_other(shop: Shop) -> None:
    """Page by page backwards every entry is seen once; each page counts what it itself leaves out."""
    job_id = long_log(shop, 12)
    seen: list[int] = []
    before: int | None = None
    while entries := (page := shop.supervisor.log(job_id, page=5, before=before)).entries:
        assert (page.total_count, page.withheld_count) == (12, 12 - len(entries))
        seen[:0] = [entry.sequence_num for entry in entries]
        before = entries[0].sequence_num
    assert seen == list(range(1, 13))


def test_a_filtered_log_counts_what_it_filters_for(shop: Shop) -> None:
    """Chosen events only: the counts are of these."""
    job_id = long_log(shop, 12)
    page = queries.log(shop.door, job_id, page=4, events=["checkpoint", "asked"])
    assert {entry.event for entry in page.entries} == {"checkpoint"}
    assert (page.returned_count, page.total_count, page.withheld_count) == (4, 10, 6)


def test_a_filtered_log_in_pages(shop: Shop) -> None:
    """Chosen events page by page: each once, each page with the count of all of these events."""
    job_id = long_log(shop, 12)
    newest = shop.supervisor.log(job_id, page=6, events=["checkpoint", "claimed"])
    assert [entry.sequence_num for entry in newest.entries] == [7, 8, 9, 10, 11, 12]
    assert (newest.total_count, newest.withheld_count, newest.truncated) == (11, 5, True)
    older = shop.supervisor.log(job_id, page=6, events=["checkpoint", "claimed"], before=7)
    assert [entry.sequence_num for entry in older.entries] == [2, 3, 4, 5, 6]
    assert (older.total_count, older.withheld_count, older.truncated) == (11, 6, True)


def test_a_log_without_such_an_event(shop: Shop) -> None:
    """Nothing is found, and nothing is withheld; a page before the first entry withholds all."""
    job_id = long_log(shop, 5)
    none = shop.supervisor.log(job_id, events=["expired"])
    assert (list(none.entries), none.total_count, none.withheld_count, none.truncated) == ([], 0, 0, False)
    before = shop.supervisor.log(job_id, before=1)
    assert (list(before.entries), before.total_count, before.withheld_count, before.truncated) == ([], 5, 5, True)


@pytest.mark.parametrize("events", ["asked", [], [""], ["a\0b"], 7])
def test_events_that_are_none_are_refused(shop: Shop, events: Any) -> None:
    """A filter that would find nothing by mistake is refused, before anything is read."""
    with pytest.raises(InvalidInput, match="events"):
        shop.supervisor.log("j", events=events)


def test_the_whole_log_of_some_events(shop: Shop) -> None:
    """All entries of the events that were asked for, first to last."""
    job_id = long_log(shop, 12)
    found = queries.entries(shop.door, job_id, page=3, events=["submitted", "checkpoint"])
    assert [entry.sequence_num for entry in found] == [1, *range(3, 13)]


def test_the_counts_of_a_page_are_of_one_instant(shop: Shop) -> None:
    """One statement reads entries and count: what is logged meanwhile cannot come between."""
    statements: list[str] = []
    job_id = long_log(shop, 5)
    sa.event.listen(shop.engine, "before_cursor_execute", lambda *given: statements.append(given[2]))
    shop.supervisor.log(job_id)
    assert sum(".log" in statement for statement in statements) == 1


def test_the_whole_log_in_order(shop: Shop) -> None:
    """All entries, first to last, whatever the size of the pages they are read in."""
    job_id = long_log(shop, 12)
    assert [entry.sequence_num for entry in queries.entries(shop.door, job_id, page=5)] == list(range(1, 13))


def test_the_log_of_another_is_not_there(shop: Shop, open_shop: Callable[..., Shop]) -> None:
    """Log, attempts and questions of a foreign job are told as those of a job that does not exist."""
    job_id = shop.job_of(shop.asked(owner_id="ann")).id
    second = open_shop(namespace="second")
    reads: list[Callable[[], object]] = [
        lambda: shop.supervisor.log(job_id, owner="bob"),
        lambda: shop.supervisor.attempts(job_id, owner="bob"),
        lambda: shop.supervisor.job(job_id, owner="bob"),
        lambda: shop.supervisor.job(job_id, owner="b\0b"),
        lambda: shop.supervisor.result(job_id, owner="bob"),
        lambda: second.supervisor.log(job_id),
        lambda: second.supervisor.job(job_id),
        lambda: second.supervisor.answers(job_id),
    ]
    for read in reads:
        with unchanged(shop, job_id), pytest.raises(JobNotFound):
            read()
    assert shop.supervisor.log(job_id, owner="ann").total_count == 3


# --- jobs ------------------------------------------------------------------------------------------------


def test_jobs_newest_first_with_their_number(shop: Shop) -> None:
    """A page of jobs, and exactly how many there are in all."""
    ids = [shop.pending().id for _ in range(7)]
    found, total = shop.supervisor.jobs(page=3)
    assert ([job.id for job in found], total) == (ids[:3:-1], 7)
    found, total = shop.supervisor.jobs(page=3, skip=6)
    assert ([job.id for job in found], total) == (ids[:1], 7)


def test_a_page_beyond_the_last_knows_the_number(shop: Shop) -> None:
    """There is nothing on it, and yet there are seven."""
    for _ in range(7):
        shop.pending()
    assert shop.supervisor.jobs(page=3, skip=9) == ([], 7)


def test_jobs_by_what_they_are(shop: Shop, open_shop: Callable[..., Shop]) -> None:
    """By owner, state, task and the beginning of the id, together and apart; of one namespace."""
    ann = shop.pending(owner_id="ann", task="shop.pay")
    bob = shop.running(owner_id="bob").lease.job_id
    named = shop.pending(job_id="100%_sure")
    open_shop(namespace="second").pending()

    def found(**options: Any) -> set[str]:
        jobs, total = shop.supervisor.jobs(**options)
        assert total == len(jobs)
        return {job.id for job in jobs}

    assert found() == {ann.id, bob, named.id}
    assert found(owner="ann") == found(task="shop.pay") == {ann.id}
    assert found(states=[State.RUNNING]) == {bob}
    assert found(states=[State.PENDING, State.RUNNING], owner="bob") == {bob}
    assert found(states=[]) == found(owner="carol") == set()
    assert found(prefix="100%_") == {named.id}
    assert found(prefix="100_") == found(prefix="%") == set()
    assert found(prefix="") == {ann.id, bob, named.id}


@pytest.mark.parametrize(
    ("field", "options"),
    [
        ("page", {"page": 0}),
        ("page", {"page": -1}),
        ("page", {"page": "10"}),
        ("page", {"page": 10_001}),
        ("skip", {"skip": -1}),
        ("prefix", {"prefix": "a\0"}),
        ("task", {"task": "a\0"}),
        ("owner", {"owner": "\ud800"}),
        ("task", {"task": "x" * 256}),
    ],
)
def test_a_question_that_cannot_be_asked(shop: Shop, field: str, options: dict[str, Any]) -> None:
    """A page of nothing, a text that Postgres cannot have: named, and not an error of the database."""
    with pytest.raises(InvalidInput) as refused:
        shop.supervisor.jobs(**options)
    assert refused.value.field == field


@pytest.mark.parametrize("options", [{"page": 0}, {"before": "x"}, {"page": 10_001}])
def test_a_page_of_the_log_is_a_page(shop: Shop, options: dict[str, Any]) -> None:
    """As for jobs."""
    job_id = long_log(shop, 3)
    with pytest.raises(InvalidInput):
        shop.supervisor.log(job_id, **options)


# --- questions -------------------------------------------------------------------------------------------


def test_the_inbox_has_what_is_open(shop: Shop, open_shop: Callable[..., Shop]) -> None:
    """Open questions, oldest first, of one owner or of all; of one namespace."""
    first, second = shop.asked(owner_id="ann"), shop.asked(owner_id="bob")
    answered = shop.asked()
    shop.supervisor.answer(answered.id, value=True, actor=ANN)
    other = open_shop(namespace="second")
    foreign = other.asked()
    assert [question.id for question in shop.supervisor.questions()] == [first.id, second.id]
    assert [question.id for question in shop.supervisor.questions(owner="bob")] == [second.id]
    assert [question.id for question in shop.supervisor.questions(page=1)] == [first.id]
    assert [question.id for question in other.supervisor.questions()] == [foreign.id]


def test_a_question_says_what_it_needs_to_be_answered(shop: Shop) -> None:
    """Content, schema, who, until when, and the generation that an answer has to name."""
    asked = new_question(
        content=stored('{"prompt": "Pay?", "show": null}'),
        schema={"type": "integer", "title": "Zahl ü"},
        to=("user:ann", "group:finance"),
    )
    shop.asked(question=asked, owner_id="acme")
    question = shop.supervisor.question(asked.id, owner="acme")
    job = shop.job(question.job_id)
    assert (question.schema, question.to, question.approvals) == (asked.schema, asked.to, 1)
    assert (question.owner_id, question.task, question.job_state) == ("acme", job.task, State.PARKED)
    assert (question.generation, question.expires_at) == (job.generation, job.wait_until)
    assert shop.supervisor.content(question) == {"prompt": "Pay?", "show": None}


def test_what_a_job_asked_in_order(shop: Shop) -> None:
    """All its questions, also those that are closed, oldest first; nothing of a foreign job."""
    question = shop.asked(owner_id="ann")
    job_id = shop.job_of(question).id
    shop.supervisor.answer(question.id, value=True, actor="user:bob")
    second = new_question("second")
    shop.hold(job_id).ask(second, ttl=HOUR)
    shop.supervisor.cancel(job_id, actor=ANN)
    found = shop.supervisor.questions(job_id=job_id)
    assert [(one.id, one.status) for one in found] == [(question.id, "answered"), (second.id, "closed")]
    assert list(shop.supervisor.questions(job_id=job_id, owner="bob")) == []


# --- attempts, nodes, values -----------------------------------------------------------------------------


def test_attempts_in_order(shop: Shop) -> None:
    """Every execution, first to last, with how and where it ended."""
    job = shop.pending()
    shop.hold(job.id).hand_over()
    holding = shop.hold(job.id)
    holding.checkpoint("half", NodeKind.CHECKPOINT, None)
    shop.lose(holding)
    shop.hold(job.id).complete(None)
    found = shop.supervisor.attempts(job.id)
    assert [attempt.number for attempt in found] == [1, 2, 3]
    assert [attempt.outcome for attempt in found] == ["handed_over", "lost", "completed"]
    assert [attempt.checkpoint_ref for attempt in found] == [None, "half", "half"]


def test_nodes_in_the_order_in_which_they_came(shop: Shop) -> None:
    """Names, kinds and sizes, of one run; values on request, unknown ones left out."""
    holding = shop.running()
    job_id, run_id = holding.lease.job_id, holding.lease.run_id
    for name, kind, value in (
        ("z", NodeKind.STEP, stored("1")),
        ("a", NodeKind.CHECKPOINT, None),
        ("m", NodeKind.EACH, stored("333")),
    ):
        holding.checkpoint(name, kind, value)
    nodes = queries.nodes(shop.door, job_id, run_id)
    assert [(node.name, node.kind, node.size) for node in nodes.values()] == [
        ("z", NodeKind.STEP, 1),
        ("a", NodeKind.CHECKPOINT, 0),
        ("m", NodeKind.EACH, 3),
    ]
    assert queries.values(shop.door, job_id, run_id, ["m", "a", "x"]) == {"m": stored("333"), "a": None}
    assert queries.nodes(shop.door, job_id, uuid4()) == {}


def test_bytes_come_back_as_they_were(shop: Shop) -> None:
    """Every byte, the encoding and the key's id: values are not text, and no codec is assumed."""
    value = stored()
    value = type(value)(bytes(range(256)), "json+kombu", "key-7")
    holding = shop.running(envelope=value)
    job_id = holding.lease.job_id
    holding.checkpoint("x", NodeKind.STEP, value)
    holding.complete(value)
    assert queries.values(shop.door, job_id, holding.lease.run_id, ["x"]) == {"x": value}
    assert queries.payload(shop.door, job_id, "envelope") == queries.payload(shop.door, job_id, "result") == value


def test_what_was_erased_is_read_as_gone(shop: Shop) -> None:
    """After an erasure names and states stay readable; what was said is None."""
    question = shop.asked()
    job_id = shop.job_of(question).id
    shop.supervisor.answer(question.id, value=True, actor=ANN)
    holding = shop.hold(job_id)
    holding.checkpoint("x", NodeKind.STEP, stored("1"))
    holding.complete(None)
    execute(shop, "SELECT supervise.erase_job(:id, 'user:ann')", id=job_id)
    found = shop.supervisor.question(question.id)
    assert (found.status, found.answered_by, found.answer) == ("answered", ANN, None)
    assert shop.supervisor.content(found) is None
    assert queries.values(shop.door, job_id, holding.lease.run_id, ["x"]) == {"x": None}
    assert shop.supervisor.answers(job_id) == {}
    assert shop.job(job_id).erased_at is not None


def test_values_are_read_as_they_were_given(shop: Shop) -> None:
    """What a completed job returned, and what was answered, as Python values."""
    question = shop.asked(question=new_question(schema={}))
    job_id = shop.job_of(question).id
    shop.supervisor.answer(question.id, {"n": [1, None]}, actor=ANN)
    assert shop.supervisor.value_of(shop.supervisor.answers(job_id)["approve"]) == {"n": [1, None]}
    shop.hold(job_id).complete(results.pack({"paid": 3}, serializer="json", codec=IDENTITY, limit=99))
    assert shop.supervisor.result(job_id) == {"paid": 3}

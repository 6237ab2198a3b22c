"""The durable loop: which items are done again after a crash, and what it carries."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from decimal import Decimal
from enum import Enum
from typing import Any, TypeVar

import pytest

from celery_supervise.body import Body
from celery_supervise.errors import (
    AttemptEnded,
    CursorLost,
    DuplicateKey,
    DuplicateName,
    InvalidInput,
    NotSerialisable,
    OutsideAttempt,
    QuestionAsked,
    TooLarge,
)
from celery_supervise.journal import MemoryJournal
from celery_supervise.model import NewQuestion, NodeKind, Stored
from celery_supervise.values import decode

T = TypeVar("T")
TEN = list(range(10))


class Worker(MemoryJournal):
    """A journal whose questions park, and whose worker may be leaving."""

    leaving = False

    def hurry(self) -> bool:
        """Whether the worker leaves."""
        return self.leaving

    def ask(self, question: NewQuestion) -> Any:
        """Parks."""
        raise QuestionAsked(str(question.id))

    def row(self, name: str = "pay") -> Any:
        """What is stored of a loop."""
        stored = self.read(name)
        assert stored is not None
        return decode(stored, what=name)


class Crash(Exception):
    """The body dies here."""


def a_body(journal: MemoryJournal) -> Body:
    """The next attempt."""
    return Body(journal, job_id="job-1")


def same(item: T) -> T:
    """The key of an item that is its own key."""
    return item


def crash_at(journal: MemoryJournal, at: int, **options: Any) -> list[int]:
    """Go through ten items and die in item `at`; the items that were begun."""
    begun = []
    with pytest.raises(Crash):  # noqa: PT012  # the loop is what raises
        for item in a_body(journal).each("pay", TEN, key=same, **options):
            begun.append(item)
            if item == at:
                raise Crash
    return begun


def rest(journal: MemoryJournal, items: Any = TEN, **options: Any) -> list[Any]:
    """What the next attempt goes through."""
    return list(a_body(journal).each("pay", items, key=same, **options))


@pytest.mark.parametrize("at", [0, 1, 5, 9])
def test_a_crash_goes_on_in_the_item_where_it_was(at: int) -> None:
    """An item is finished when the next one is requested: the one that was begun is done again."""
    journal = Worker()
    assert crash_at(journal, at) == TEN[: at + 1]
    assert rest(journal) == TEN[at:]
    assert rest(journal) == []


def test_a_loop_that_is_finished_does_not_look_at_its_items() -> None:
    """Whatever they are now, and however many."""
    journal = Worker()
    rest(journal)

    looked_at = iter(TEN)
    assert rest(journal, looked_at) == []
    assert next(looked_at) == 0


def test_a_loop_is_one_row() -> None:
    """Ten thousand items, one node."""
    journal = Worker()
    assert len(rest(journal, range(1_000))) == 1_000
    assert list(journal.nodes()) == ["pay"]
    assert journal.row() == {"last": 999, "done": True, "carried": {}}


def test_an_empty_loop_is_finished() -> None:
    """And stays so, if items appear later."""
    journal = Worker()
    assert rest(journal, []) == []
    assert journal.row() == {"last": None, "done": True, "carried": {}}
    assert rest(journal) == []


def test_re_entry_at_the_end_of_ten_thousand_items_is_quick() -> None:
    """Keys are compared in memory; the journal is read once."""
    journal = Worker()
    items = range(10_000)
    body = a_body(journal)
    for item in body.each("pay", items, key=same, every=5_000):
        if item == 9_999:
            break
    body.step("later", int)  # whatever is saved after an item is saved after its cursor
    start = time.perf_counter()
    assert rest(journal, items) == [9_999]
    assert time.perf_counter() - start < 1  # 0.01 s on an idle machine


# --- carried values --------------------------------------------------------------------------------------


def total(journal: MemoryJournal, *, die_in: int | None = None, **options: Any) -> Decimal:
    """Add up the items, carried with the cursor."""
    loop = a_body(journal).each("pay", TEN, key=same, paid=Decimal(0), **options)
    for item in loop:
        if item == die_in:
            raise Crash
        loop.paid += item
    paid: Decimal = loop["paid"]
    return paid


@pytest.mark.parametrize("die_in", TEN)
def test_what_is_carried_is_saved_with_the_cursor(die_in: int) -> None:
    """No item counts twice or not at all, wherever it dies."""
    journal = Worker()
    with pytest.raises(Crash):
        total(journal, die_in=die_in)
    assert total(journal) == Decimal(45)
    assert total(journal) == Decimal(45)


@pytest.mark.parametrize("die_in", TEN)
@pytest.mark.parametrize("every", [1, 3, 100, timedelta(days=1)], ids=str)
def test_cursor_and_carried_never_part(every: Any, die_in: int) -> None:
    """However rarely it saves: items are done again, but what is carried is from before them."""
    journal = Worker()
    with pytest.raises(Crash):
        total(journal, die_in=die_in, every=every)
    assert total(journal, every=every) == Decimal(45)


def test_carried_values_may_be_added_and_removed_by_a_deploy() -> None:
    """A new one starts with its first value, one that is gone is dropped."""
    journal = Worker()
    with pytest.raises(Crash):
        total(journal, die_in=5)
    loop = a_body(journal).each("pay", TEN, key=same, count=0)
    for _ in loop:
        loop.count += 1
    assert loop.count == 5
    assert journal.row()["carried"] == {"count": 5}


def test_only_what_was_declared_is_carried() -> None:
    """A misspelt attribute would be lost: it is an error, as attribute and as item."""
    loop = a_body(Worker()).each("pay", TEN, key=same, paid=0)
    with pytest.raises(AttributeError, match="does not carry 'payd'"):
        loop.payd = 1
    with pytest.raises(AttributeError, match="does not carry 'payd'"):
        loop.payd  # noqa: B018  # reading it is the test
    with pytest.raises(KeyError):
        loop["payd"] = 1
    with pytest.raises(KeyError):
        loop["payd"]
    loop["paid"] = 2
    assert loop.paid == 2


@pytest.mark.parametrize("name", ["flush", "_last", "__init__"])
def test_a_carried_name_must_not_hide_the_loops_own(name: str) -> None:
    """It is read and written as an attribute."""
    with pytest.raises(InvalidInput, match="cannot carry"):
        a_body(Worker()).each("pay", TEN, key=same, **{name: 1})


def test_what_is_carried_is_checked_at_the_call_and_at_each_save() -> None:
    """First values before anything runs, later ones at the item that made them."""
    with pytest.raises(NotSerialisable, match=r"\$\.pair: a tuple comes back as a list; give plain values"):
        a_body(Worker()).each("pay", TEN, key=same, pair=(1, 2))
    journal = Worker()
    body = a_body(journal)
    loop = body.each("pay", TEN, key=same, pair=None)
    items = iter(loop)
    next(items)
    loop.pair = (1, 2)
    with pytest.raises(NotSerialisable, match=r"\$\.carried\.pair"):
        next(items)
    assert isinstance(body.dead, NotSerialisable)
    assert journal.events == []


def test_s68_what_is_carried_is_bounded() -> None:
    """Like every value."""
    body = Body(Worker(), job_id="job-1", max_value_bytes=100)
    with pytest.raises(TooLarge, match="each 'pay'"):
        body.each("pay", TEN, key=same, text="x" * 100)


# --- keys ------------------------------------------------------------------------------------------------


class Code(str, Enum):
    """A key that is a text."""

    A = "a"
    B = "b"


@pytest.mark.parametrize(
    ("items", "at"),
    [(["1", 1, "2", 2], 1), ([Code.A, Code.B, "c"], Code.B), ([-1, 0, 2**70], 0), (["", "é", "e\u0301"], "é")],
    ids=ascii,
)
def test_keys_are_told_apart_by_type_and_value(items: list[Any], at: Any) -> None:
    """`1` is not `"1"`; big, empty and accented ones are keys like others."""
    journal = Worker()
    for item in a_body(journal).each("pay", items, key=same):
        if item is at:
            break
    assert rest(journal, items) == items[items.index(at) :]


@pytest.mark.parametrize("key", [True, 1.5, None, b"a", (1,), [1]], ids=ascii)
def test_other_keys_are_refused(key: Any) -> None:
    """A bool is no number here; the error names the loop and the type."""
    body = a_body(Worker())
    with pytest.raises(InvalidInput, match=r"each\('pay'\) needs keys that are str or int") as caught:
        list(body.each("pay", [1], key=lambda _: key))
    assert body.dead is caught.value


def test_a_key_with_a_lone_surrogate_is_refused_at_its_item() -> None:
    """The cursor could not be stored."""
    with pytest.raises(NotSerialisable, match=r"\$\.last"):
        list(a_body(Worker()).each("pay", ["\ud800"], key=same))


@pytest.mark.parametrize("at", [None, 0, 2])
def test_a_duplicate_key_is_an_error_that_names_it(at: int | None) -> None:
    """At its item, also among those that are passed over at re-entry."""
    journal = Worker()
    if at is not None:
        crash_at(journal, at)
    body = a_body(journal)
    with pytest.raises(DuplicateKey, match=r"each\('pay'\) has two items with the key 1") as caught:
        list(body.each("pay", [0, 1, 1, 2], key=same))
    assert body.dead is caught.value
    assert (caught.value.name, caught.value.key) == ("pay", 1)


def test_a_cursor_that_is_gone_is_an_error_that_names_it() -> None:
    """Before any item is done: nobody knows where to go on."""
    journal = Worker()
    crash_at(journal, 5)
    body = a_body(journal)
    begun: list[Any] = []
    items: list[Any] = [0, 1, "4", 7]
    with pytest.raises(CursorLost, match=r"each\('pay'\) stopped after 4, which is not among the items") as caught:
        begun.extend(body.each("pay", items, key=same))
    assert begun == []
    assert body.dead is caught.value


def test_items_may_come_and_go_elsewhere() -> None:
    """Only the cursor's own item must stay; what is new behind it is done."""
    journal = Worker()
    crash_at(journal, 5)
    assert rest(journal, [1, 4, 6, 100]) == [6, 100]


# --- when it saves ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("every", "saves"), [(1, 11), (3, 4), (10, 2), (11, 1)])
def test_it_saves_every_so_many_items(every: int, saves: int) -> None:
    """And once at the end."""
    journal = Worker()
    rest(journal, every=every)
    assert len(journal.events) == saves


def test_what_was_not_saved_is_done_again() -> None:
    """The price of saving rarely."""
    journal = Worker()
    crash_at(journal, 7, every=3)
    assert rest(journal, every=3) == [6, 7, 8, 9]


def test_it_saves_after_some_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the monotonic clock: a wall clock that jumps is none of its business."""
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    monkeypatch.setattr(time, "time", lambda: 0.0)
    journal = Worker()
    for item in a_body(journal).each("pay", TEN, key=same, every=timedelta(seconds=5)):
        now[0] += 2
        if item == 7:
            break
    assert len(journal.events) == 2
    assert rest(journal) == [6, 7, 8, 9]


def test_it_saves_at_once_when_the_worker_leaves() -> None:
    """However rarely it saves otherwise: a hand-over or a pause repeats nothing."""
    journal = Worker()
    for item in a_body(journal).each("pay", TEN, key=same, every=1000):
        journal.leaving = item == 3
        if item == 5:
            break
    assert journal.row()["last"] == 3
    assert rest(journal) == [4, 5, 6, 7, 8, 9]


def ask(body: Body) -> None:
    """Something that parks."""
    body.ask("go", "Go on?", choices=["yes"])


def step(body: Body) -> None:
    """Something that is saved."""
    body.step("inner", int)


def checkpoint(body: Body) -> None:
    """Something else that is saved."""
    body.checkpoint("inner", at=1)


@pytest.mark.parametrize("call", [ask, step, checkpoint])
def test_what_is_saved_after_an_item_is_never_found_without_it(call: Callable[[Body], None]) -> None:
    """A question that parks, a step, a checkpoint: the cursor is saved first."""
    journal = Worker()
    body = a_body(journal)
    with pytest.raises((QuestionAsked, Crash)):  # noqa: PT012  # the loop is what raises
        for item in body.each("pay", TEN, key=same, every=1000):
            if item == 4:
                call(body)
                raise Crash
    assert journal.row()["last"] == 3
    assert rest(journal) == TEN[4:]


@pytest.mark.parametrize("every", [0, -1, True, 1.5, "3", None, timedelta(0), timedelta(-1)], ids=str)
def test_how_often_it_saves_is_checked(every: Any) -> None:
    """Before anything runs."""
    with pytest.raises(InvalidInput, match="every"):
        a_body(Worker()).each("pay", TEN, key=same, every=every)


# --- leaving and nesting ---------------------------------------------------------------------------------


@pytest.mark.parametrize("every", [1, 3, 100])
def test_a_break_leaves_the_item_unfinished(every: int) -> None:
    """As a crash there would; what follows in the body finds the cursor saved."""
    journal = Worker()
    body = a_body(journal)
    for item in body.each("pay", TEN, key=same, every=every):
        if item == 5:
            break
    body.checkpoint("after")
    assert journal.row() == {"last": 4, "done": False, "carried": {}}
    assert rest(journal) == TEN[5:]


def pair(order: int, line: int) -> tuple[int, int]:
    """An effect of an item in an item."""
    return order, line


def test_loops_nest_with_the_key_in_the_name() -> None:
    """Steps and loops inside, two loops at once: each is entered where it was."""
    journal = Worker()
    paid: list[tuple[int, int]] = []

    def work(die_in: tuple[int, int] | None) -> None:
        body = a_body(journal)
        for order in body.each("orders", [1, 2, 3], key=same, every=2):
            for line in body.each(f"lines-{order}", [1, 2], key=same, every=2):
                if (order, line) == die_in:
                    raise Crash
                paid.append(body.step(f"pay-{order}-{line}", pair, order, line))

    for die_in in ((1, 1), (1, 2), (2, 2), (3, 1)):
        with pytest.raises(Crash):
            work(die_in)
    work(None)
    assert sorted(set(paid)) == [(a, b) for a in (1, 2, 3) for b in (1, 2)]
    assert len([event for event in journal.events if event.name.startswith("pay-")]) == 6


def test_a_loop_is_gone_through_once() -> None:
    """Its items would be skipped the second time, or done twice."""
    body = a_body(Worker())
    loop = body.each("pay", TEN, key=same)
    assert list(loop) == TEN
    with pytest.raises(DuplicateName):
        iter(loop)
    assert isinstance(body.dead, DuplicateName)


def test_an_error_of_the_items_or_the_key_passes_untouched() -> None:
    """A query that fails is the body's; the attempt lives."""

    def broken() -> Iterator[int]:
        yield 1
        raise ConnectionError("query")

    body = a_body(Worker())
    with pytest.raises(ConnectionError):
        list(body.each("pay", broken(), key=same))
    with pytest.raises(ZeroDivisionError):
        list(body.each("other", [0], key=lambda item: 1 // item))
    assert body.dead is None


def test_a_dead_attempt_gives_no_further_item() -> None:
    """Whatever was swallowed in the loop's body."""
    body, begun = a_body(Worker()), []
    with pytest.raises(AttemptEnded):  # noqa: PT012  # the loop is what raises
        for item in body.each("pay", TEN, key=same):
            begun.append(item)
            try:
                ask(body)
            except BaseException:  # noqa: BLE001, S112  # the scenario
                continue
    assert begun == [0]


def test_control_flow_at_a_save_leaves_the_loop() -> None:
    """Paused between two items: the finished one is saved, the next is not begun."""

    class Pausing(Worker):
        def save(self, name: str, kind: NodeKind, value: Stored | None) -> None:
            super().save(name, kind, value)
            raise AttemptEnded("parked", "user_paused")

    journal = Pausing()
    begun: list[int] = []
    with pytest.raises(AttemptEnded):
        begun.extend(a_body(journal).each("pay", TEN, key=same))
    assert journal.row()["last"] == 0
    assert begun == [0]


def test_another_thread_cannot_go_on_with_a_loop() -> None:
    """Its items belong to the body's thread."""
    items = iter(a_body(Worker()).each("pay", TEN, key=same))
    with ThreadPoolExecutor(1) as pool, pytest.raises(OutsideAttempt):
        pool.submit(next, items).result()

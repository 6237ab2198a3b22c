"""What a task's body may rely on: decided once, found by name, nothing after the end of its attempt."""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import copy_context
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from decimal import Decimal
from enum import Enum
from typing import Any, NoReturn, TypeVar
from uuid import UUID

import pytest
import sqlalchemy as sa
from celery import Celery
from pydantic import BaseModel, model_validator
from sqlalchemy.orm import Session

from celery_supervise.block import Blocks
from celery_supervise.body import Body, current, current_body, use
from celery_supervise.errors import (
    AttemptEnded,
    BodyError,
    DuplicateName,
    InsideTransaction,
    InvalidAnswer,
    InvalidInput,
    LeaseLost,
    NeedsAnswer,
    NotSerialisable,
    OutsideAttempt,
    QuestionAsked,
    QuestionChanged,
    SecondSave,
    SuperviseError,
    TooLarge,
    Unreadable,
)
from celery_supervise.hints import MISSING, return_type
from celery_supervise.journal import Answers, MemoryJournal
from celery_supervise.model import Answer, NewQuestion, NodeKind, Stored
from celery_supervise.testing import answers
from celery_supervise.values import encode
from tests.tools import named

T = TypeVar("T")
UTC = timezone.utc
NEW_YEAR = datetime(2026, 1, 1, 12, tzinfo=UTC)


class Parking(MemoryJournal):
    """A journal that does as a worker's does: a question parks, a person answers later."""

    def __init__(self) -> None:
        super().__init__({})
        self.open: NewQuestion | None = None
        self.asked: list[NewQuestion] = []
        self.reads: list[str] = []
        self.listed = 0
        self.shown: list[tuple[int | None, int | None, str | None]] = []
        self.leaving: BaseException | None = None

    def nodes(self) -> Any:
        """Counted: a body asks once."""
        self.listed += 1
        return super().nodes()

    def read(self, name: str) -> Stored | None:
        """Noted."""
        self.reads.append(name)
        return super().read(name)

    def save(self, name: str, kind: NodeKind, value: Stored | None) -> None:
        """Saved, and then the job may be judged to leave the attempt."""
        super().save(name, kind, value)
        if self.leaving is not None:
            raise self.leaving

    def ask(self, question: NewQuestion) -> NoReturn:
        """Parks."""
        self._answers.pop(question.key, None)
        self.open = question
        self.asked.append(question)
        raise QuestionAsked(str(question.id))

    def answered(self, value: Any) -> None:
        """A person answers the open question."""
        assert self.open is not None
        stored = encode(value, limit=1000)
        self._answers[self.open.key] = Answer(
            self.open.id, self.open.key, stored, self.open.digest, "user:ann", datetime.now(UTC)
        )
        self.open = None

    def progress(self, current: int | None, total: int | None, message: str | None) -> None:
        """Noted."""
        self.shown.append((current, total, message))


@dataclass
class Row:
    """What a step returns in a shop."""

    id: int
    amount: Decimal


class Approval(BaseModel):
    """A form."""

    approved: bool


class Colour(Enum):
    """Something that JSON does not know."""

    RED = "red"


def a_body(journal: MemoryJournal | None = None, **options: Any) -> Body:
    """A body as a worker has it."""
    return Body(journal or Parking(), job_id="job-1", **options)


def tries(error: type[BaseException], call: Callable[[], object]) -> BaseException:
    """The error that `call` raises, which must be `error`."""
    with pytest.raises(error) as caught:
        call()
    return caught.value


class Counter:
    """Something with an effect."""

    def __init__(self) -> None:
        self.calls: list[Any] = []

    def __call__(self, value: T) -> T:
        """Do it, and return what was given."""
        self.calls.append(value)
        return value


# --- steps -----------------------------------------------------------------------------------------------


def test_a_step_runs_once() -> None:
    """Entered again, what is remembered comes back at once, and the function does not run."""
    journal, effect = Parking(), Counter()
    for _ in range(3):
        assert a_body(journal).step("pay", effect, 7) == 7
    assert effect.calls == [7]


def test_s65_a_step_is_found_by_name_and_never_by_position() -> None:
    """Inserted, removed and reordered steps resume."""
    journal, effect = Parking(), Counter()
    body = a_body(journal)
    assert [body.step(name, effect, name) for name in ("a", "b", "c")] == ["a", "b", "c"]
    body = a_body(journal)
    assert [body.step(name, effect, name + "!") for name in ("new", "c", "a")] == ["new!", "c", "a"]
    assert effect.calls == ["a", "b", "c", "new!"]


def load_rows() -> list[Row]:
    """Annotated, so that its rows come back as rows."""
    return [Row(1, Decimal("1.10"))]


def test_a_step_gives_the_decoded_value_the_first_time_too() -> None:
    """Both runs see the same: equal, not the very object, with the same types."""
    made: list[list[Row]] = []

    def load() -> list[Row]:
        made.append(load_rows())
        return made[0]

    journal = Parking()
    first, again = a_body(journal).step("load", load), a_body(journal).step("load", load)
    assert first == again == made[0]
    assert first is not made[0]
    assert type(again[0]) is Row
    assert type(again[0].amount) is Decimal


def test_s23_a_step_refuses_at_its_line_what_would_not_come_back() -> None:
    """The error has the path and the step; nothing is saved; the attempt is over."""
    journal = Parking()
    body = a_body(journal)
    error = tries(NotSerialisable, lambda: body.step("load", lambda: {"rows": [(1, 2)]}))
    assert isinstance(error, NotSerialisable)
    assert error.path == "$.rows[0]"
    assert "annotate the return type of the function of step 'load'" in str(error)
    assert list(journal.nodes()) == []
    assert body.dead is error


def test_s23_a_step_that_cannot_be_read_back_fails_loudly() -> None:
    """A class that moved, an annotation that is gone: never None in its place, and the bytes stay."""
    journal = Parking()
    a_body(journal).step("load", load_rows)
    stored = journal.read("load")
    body = a_body(journal)
    error = tries(Unreadable, lambda: body.step("load", list))  # another function, annotated less exactly
    assert "step 'load'" in str(error)
    assert body.dead is error
    assert journal.read("load") == stored
    assert a_body(journal).step("load", load_rows) == load_rows()


def test_s23_a_value_that_is_gone_is_not_none() -> None:
    """A step whose bytes are missing is an error, not a step that returned None."""

    class Gone(Parking):
        def read(self, name: str) -> Stored | None:
            return super().read(name) and None

    journal = Gone()
    a_body(journal).step("load", load_rows)
    error = tries(Unreadable, lambda: a_body(journal).step("load", load_rows))
    assert "its value is gone" in str(error)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), "\ud800", {1}, (1,), NEW_YEAR.replace(fold=1)])
def test_s66_s67_values_are_refused_before_anything_is_written(value: Any) -> None:
    """With the library's error, at the step that made them."""
    journal = Parking()
    tries(NotSerialisable, lambda: a_body(journal).step("s", lambda: value))
    assert journal.events == []


@pytest.mark.parametrize("value", ["a\0b", b"\xff\0", Decimal("1.10"), NEW_YEAR, None, False, 0, ""])
def test_s66_s67_other_values_come_back_equal(value: Any) -> None:
    """NUL, bytes, decimals, dates, and what is false."""
    journal = Parking()
    a_body(journal).step("s", lambda: value)
    again = a_body(journal).step("s", lambda: "not run")
    assert again == value
    assert type(again) is type(value)


def test_s68_sizes_are_bounded_by_value_and_by_job() -> None:
    """In bytes of the encoding; a node that is replaced gives its room back."""
    journal = Parking()
    a_body(journal, max_value_bytes=10).step("fits", lambda: "x" * 8)
    error = tries(TooLarge, lambda: a_body(journal, max_value_bytes=10).step("over", lambda: "x" * 9))
    assert "step 'over': 11 bytes, the limit is 10" in str(error)
    body = a_body(journal, max_job_bytes=20)
    error = tries(TooLarge, lambda: body.step("more", lambda: "x" * 9))
    assert "21 bytes, the limit is 20" in str(error)
    body = a_body(journal, max_job_bytes=24)
    body.checkpoint("c", text="abc")
    tries(TooLarge, lambda: body.checkpoint("d", t=""))
    a_body(journal, max_job_bytes=24).checkpoint("c", text="ab")
    a_body(journal, max_job_bytes=24).checkpoint("c", text="abc")
    assert list(journal.nodes()) == ["fits", "c"]


def none_step() -> None:
    """Returns nothing, and says so."""


def test_a_step_may_return_nothing() -> None:
    """Annotated or not; None is remembered as None and not as missing."""
    journal, effect = Parking(), Counter()
    for _ in range(2):
        body = a_body(journal)
        body.step("annotated", none_step)
        assert body.step("plain", lambda: effect(None)) is None
    assert effect.calls == [None]


app = Celery("shop", set_as_current=False)


@app.task
def other_task(number: int) -> tuple[int, ...]:
    """A task that a step calls as a function."""
    return (number, number)


class Loader:
    """Something that is called in several ways."""

    def rows(self) -> tuple[int, ...]:
        """A bound method."""
        return (1, 2)

    def __call__(self) -> tuple[int, ...]:
        """An object that is callable."""
        return (3,)


def colour(name: str) -> "Colour":  # noqa: UP037  # resolved at run time, like every annotation here
    """A function for `functools.partial`."""
    return Colour(name)


def decorated(function: Callable[[], T]) -> Callable[[], T]:
    """A shop's decorator."""

    @functools.wraps(function)
    def inner() -> T:
        return function()

    return inner


CALLABLES: list[tuple[Callable[[], Any], Any]] = [
    (functools.partial(other_task, 7), (7, 7)),
    (Loader().rows, (1, 2)),
    (Loader(), (3,)),
    (functools.partial(colour, "red"), Colour.RED),
    (decorated(load_rows), load_rows()),
    (lambda: [1, "a", None], [1, "a", None]),
    (functools.partial(Approval, approved=True), Approval(approved=True)),
]


@pytest.mark.parametrize(("function", "expected"), CALLABLES, ids=lambda part: type(part).__name__)
def test_the_annotation_is_found_however_the_function_is_given(function: Callable[[], Any], expected: Any) -> None:
    """A task, a bound method, a callable object, a partial, a decorated function, a class, a lambda."""
    journal = Parking()
    for _ in range(2):
        again = a_body(journal).step("s", function)
        assert again == expected
        assert type(again) is type(expected)


def test_a_hint_that_cannot_be_resolved_counts_as_none() -> None:
    """One of another argument does not hide that of the result."""

    def unknown() -> NoSuchName:  # type: ignore[name-defined]  # noqa: F821
        return 1

    def partly(rows: NoSuchName) -> "tuple[int, ...]":  # type: ignore[name-defined]  # noqa: F821, UP037
        return (rows,)

    assert return_type(unknown) is MISSING
    assert return_type(partly) == tuple[int, ...]
    assert a_body().step("s", unknown) == 1
    assert a_body().step("s", partly, 1) == (1,)


def test_a_step_whose_function_raises_decides_nothing() -> None:
    """The error passes untouched, the attempt lives, and the name may be tried again."""
    journal, error, effect = Parking(), ConnectionError("bank"), Counter()

    def fails() -> int:
        raise error

    body = a_body(journal)
    assert tries(ConnectionError, lambda: body.step("pay", fails)) is error
    assert body.dead is None
    assert body.step("pay", effect, 7) == 7
    tries(DuplicateName, lambda: body.step("pay", effect, 7))
    assert effect.calls == [7]


def test_a_step_that_is_tried_again_may_use_its_inner_names_again() -> None:
    """A retry helper around a step whose function has steps of its own: what is decided inside stays."""
    journal, effect = Parking(), Counter()
    body = a_body(journal)
    errors = [ConnectionError("bank"), ConnectionError("bank")]

    def outer() -> int:
        number = body.step("inner", effect, 7)
        if errors:
            raise errors.pop()
        return number

    assert retrying(lambda: body.step("outer", outer)) == 7
    assert effect.calls == [7]


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), GeneratorExit()], ids=repr)
def test_foreign_base_exceptions_pass_untouched(error: BaseException) -> None:
    """What the pool or the person at the terminal raises is not ours."""
    body = a_body()

    def leaves() -> None:
        raise error

    assert tries(type(error), lambda: body.step("s", leaves)) is error
    assert body.dead is None


def test_an_error_within_our_own_code_ends_the_attempt() -> None:
    """Nobody knows whether the save was committed: SoftTimeLimitExceeded comes at any instruction."""

    class Interrupted(Parking):
        def save(self, name: str, kind: NodeKind, value: Stored | None) -> None:
            super().save(name, kind, value)
            raise TimeoutError("the reply was lost")

    body = a_body(Interrupted())
    tries(TimeoutError, lambda: body.step("s", none_step))
    assert isinstance(body.dead, TimeoutError)
    tries(AttemptEnded, lambda: body.step("t", none_step))


def test_a_coroutine_is_refused() -> None:
    """It would never run; the refusal leaves no warning behind."""

    async def later() -> int:
        return 1

    error = tries(NotSerialisable, lambda: a_body().step("s", later))
    assert "coroutine" in str(error)


def test_steps_nest() -> None:
    """A step's function may use steps and questions of its own; the outer one is decided last."""
    journal, effect = Parking(), Counter()

    def outer(body: Body) -> int:
        inner = body.step("inner", effect, 1)
        return inner + body.ask("more", "How many more?", choices=[1, 2])

    body = a_body(journal)
    tries(QuestionAsked, lambda: body.step("outer", outer, body))
    journal.answered(2)
    for _ in range(2):
        body = a_body(journal)
        assert body.step("outer", outer, body) == 3
    assert effect.calls == [1]
    assert list(journal.nodes()) == ["inner", "outer"]


# --- names -----------------------------------------------------------------------------------------------


def test_a_name_is_used_once_in_an_attempt() -> None:
    """Step, checkpoint and loop share one name space; the attempt is over, whoever swallows the error."""
    calls: list[Callable[[Body], Any]] = [
        lambda body: body.step("x", none_step),
        lambda body: body.checkpoint("x"),
        lambda body: body.each("x", [], key=str),
    ]
    for first in calls:
        for second in calls:
            body = a_body()
            first(body)
            error = tries(DuplicateName, functools.partial(second, body))
            assert "'x' is used twice" in str(error)
            tries(AttemptEnded, lambda body=body: body.checkpoint("other"))  # type: ignore[misc]


def test_questions_have_names_of_their_own() -> None:
    """A step and a question may have one name; two questions may not."""
    body = a_body(MemoryJournal({"x": "a"}))
    body.step("x", none_step)
    assert body.ask("x", "?", choices=["a"]) == "a"
    tries(DuplicateName, lambda: body.ask("x", "?", choices=["a"]))


@pytest.mark.parametrize("name", ["", " ", "x" * 256, "é" * 128, "a\0", "\ud800", 7, None])
def test_s69_names_are_checked_before_anything_runs(name: Any) -> None:
    """Of steps, checkpoints, loops and questions alike."""
    effect = Counter()
    calls: list[Callable[[Body], Any]] = [
        lambda body: body.step(name, effect, 1),
        lambda body: body.checkpoint(name),
        lambda body: body.each(name, [], key=str),
        lambda body: body.ask(name, "?", choices=["a"]),
    ]
    for call in calls:
        body = a_body()
        error = tries(InvalidInput, functools.partial(call, body))
        assert body.dead is error
    assert effect.calls == []


def test_a_name_keeps_its_kind() -> None:
    """What was a step is not taken for a loop after a change of the code."""
    journal = Parking()
    a_body(journal).step("x", lambda: {"last": 1, "done": True, "carried": {}})
    error = tries(Unreadable, lambda: a_body(journal).each("x", [1], key=str))
    assert "saved as a step" in str(error)


# --- checkpoints, decisions, progress --------------------------------------------------------------------


def test_a_checkpoint_is_written_once_and_replaced_where_it_changed() -> None:
    """Entered again with equal bindings it writes nothing."""
    journal = Parking()
    for total in (1, 1, 2, 2):
        a_body(journal).checkpoint("loaded", total=total, at=NEW_YEAR)
    a_body(journal).checkpoint("plain")
    a_body(journal).checkpoint("plain")
    assert [event.name for event in journal.events] == ["loaded", "loaded", "plain"]
    assert a_body(journal).decisions.bindings["total"] == 2


def test_bindings_are_checked_at_the_call() -> None:
    """They have no annotation: the advice is another."""
    error = tries(NotSerialisable, lambda: a_body().checkpoint("c", rows=[(1, 2)]))
    assert "$.rows[0]: a tuple comes back as a list; give plain values" in str(error)


def test_decisions_are_read_only_and_say_where_the_run_is() -> None:
    """Node, accumulated bindings, visited, run id; the same for whoever resumes."""
    journal = Parking()
    body = a_body(journal)
    assert body.decisions.node is None
    assert body.decisions.visited == ()
    body.checkpoint("begun", batch=7, total=1)
    body.step("load", load_rows)
    body.checkpoint("loaded", total=2)
    for found in (body.decisions, a_body(journal).decisions):
        assert found.node == "loaded"
        assert found.visited == ("begun", "load", "loaded")
        assert dict(found.bindings) == {"batch": 7, "total": 2}
        assert found.run_id == journal.run_id
        with pytest.raises(TypeError):
            found.bindings["total"] = 3  # type: ignore[index]


def test_an_option_that_ask_does_not_have() -> None:
    """The nearest that it has is named, as for settings; nothing is asked."""
    journal = Parking()
    with pytest.raises(InvalidInput, match="tll: is no option of ask; did you mean 'ttl'"):
        a_body(journal).ask("go", "Go?", choices=["yes"], tll=timedelta(days=1))  # type: ignore[call-overload]
    assert journal.asked == []


def test_progress_is_shown_and_checked() -> None:
    """It is no checkpoint; what the database would refuse is refused first."""
    journal = Parking()
    body = a_body(journal)
    body.progress(1, 10, "paying")
    body.progress(message="nearly")
    assert journal.shown == [(1, 10, "paying"), (None, None, "nearly")]
    assert journal.events == []
    numbers: list[tuple[Any, ...]] = [(-1,), (True,), (1.5,), (2**63,), (1, "2")]
    texts: list[tuple[Any, ...]] = [(1, 2, "a\0"), (1, 2, "\ud800"), (1, 2, "x" * 1025), (1, 2, 7)]
    for arguments in numbers + texts:
        tries(InvalidInput, functools.partial(a_body(journal).progress, *arguments))


def test_an_effect_key_is_the_same_in_every_attempt() -> None:
    """A UUID of job and name; a number and its text are two effects, two jobs have two keys."""
    key = a_body().effect_key("pay-7")
    assert key == a_body(Parking()).effect_key("pay-7") == str(UUID(key))
    others = [a_body().effect_key(7), a_body().effect_key("7"), Body(Parking(), job_id="job-2").effect_key("pay-7")]
    assert len({key, *others}) == 4
    for wrong in (True, 1.5, None, "", "x" * 256):
        tries(InvalidInput, lambda wrong=wrong: a_body().effect_key(wrong))  # type: ignore[misc]


# --- questions -------------------------------------------------------------------------------------------


def test_a_question_parks_and_its_answer_is_found_next_time() -> None:
    """As an instance of the form; asked once."""
    journal = Parking()

    def pay(body: Body) -> str:
        return "paid" if body.ask("approve", "Pay?", form=Approval).approved else "not"

    tries(QuestionAsked, lambda: pay(a_body(journal)))
    journal.answered({"approved": True})
    assert pay(a_body(journal)) == "paid"
    assert len(journal.asked) == 1


@pytest.mark.parametrize("value", [False, 0, "", [], {}, None])
def test_s13_false_and_nothing_are_answers(value: Any) -> None:
    """The body gets exactly that value and type, and does not ask again."""
    journal = Parking()
    tries(QuestionAsked, lambda: a_body(journal).ask("q", "?", schema={}))
    journal.answered(value)
    for _ in range(2):
        again = a_body(journal).ask("q", "?", schema={})
        assert again == value
        assert type(again) is type(value)
    assert len(journal.asked) == 1


def test_s13_a_false_choice_is_a_choice() -> None:
    """Choices may be false themselves."""
    for choice in (False, 0, ""):
        assert a_body(MemoryJournal({"q": choice})).ask("q", "?", choices=[choice, "other"]) == choice


def swallowing(call: Callable[[], T]) -> T | None:
    """What half of all task bodies do."""
    try:
        return call()
    except Exception:  # noqa: BLE001  # the scenario
        return None


def retrying(call: Callable[[], T], attempts: int = 5) -> T:
    """A shop's retry helper."""
    for _ in range(attempts - 1):
        try:
            return call()
        except Exception:  # noqa: BLE001, S112  # the scenario
            continue
    return call()


@pytest.mark.parametrize("wrapper", [swallowing, retrying])
def test_s11_no_except_exception_swallows_the_park(wrapper: Callable[[Callable[[], Any]], Any]) -> None:
    """The question leaves the body at once: one question, and nothing after it runs."""
    journal, effect = Parking(), Counter()

    def pay(body: Body) -> None:
        wrapper(lambda: body.ask("approve", "Pay?", form=Approval))
        effect("paid")

    tries(QuestionAsked, lambda: pay(a_body(journal)))
    assert len(journal.asked) == 1
    assert effect.calls == []


def test_s11_a_park_that_is_swallowed_all_the_same_ends_every_later_call() -> None:
    """`except BaseException`, or `return` in a `finally`: the attempt stays over, its effects stop."""
    body = a_body()
    asked = tries(QuestionAsked, lambda: body.ask("approve", "Pay?", form=Approval))
    assert body.dead is asked
    calls: list[Callable[[], Any]] = [
        lambda: body.step("pay", none_step),
        lambda: body.checkpoint("paid"),
        lambda: body.ask("again", "?", choices=["a"]),
        lambda: body.each("rows", [], key=str),
        lambda: body.progress(1),
        lambda: body.effect_key("pay"),
        lambda: body.decisions,
        lambda: body.transaction(object()).__enter__(),
    ]
    for call in calls:
        error = tries(AttemptEnded, call)
        assert isinstance(error, AttemptEnded)
        assert error.state == "parked"
    assert body.dead is asked


def test_s11_another_thread_cannot_ask() -> None:
    """It is told so; the attempt is over, so that swallowing the error wins nothing."""
    journal = Parking()
    body = a_body(journal)
    calls: list[tuple[str, Callable[[], Any]]] = [
        ("ask", lambda: body.ask("approve", "Pay?", form=Approval)),
        ("step", lambda: body.step("pay", none_step)),
        ("each", lambda: body.each("rows", [], key=str)),
        ("checkpoint", lambda: body.checkpoint("paid")),
        ("progress", lambda: body.progress(1)),
    ]
    with ThreadPoolExecutor(1) as pool:
        for name, call in calls:
            error = tries(OutsideAttempt, pool.submit(copy_context().run, call).result)
            assert isinstance(error, OutsideAttempt)
            assert error.call == name
    assert journal.asked == []
    assert isinstance(body.dead, OutsideAttempt)
    tries(AttemptEnded, lambda: body.ask("approve", "Pay?", form=Approval))


def test_a_new_thread_has_no_body() -> None:
    """It finds none, and says so."""
    found: list[Any] = []

    def look() -> None:
        found.extend([current_body.get(), tries(OutsideAttempt, lambda: current("ask"))])

    with use(a_body()) as body:
        assert current("ask") is body
        thread = threading.Thread(target=look)
        thread.start()
        thread.join()
    assert found[0] is None
    assert "ask(): no attempt of a supervised task is running in this thread" in str(found[1])
    assert current_body.get() is None


def test_bodies_nest() -> None:
    """A task called as a function inside another has its own."""
    with use(a_body()) as outer:
        with use(a_body()) as inner:
            assert current("step") is inner
        assert current("step") is outer


def test_a_changed_question_fails_unless_the_author_says_otherwise() -> None:
    """What was approved is what runs."""
    journal = Parking()

    def ask(total: int, **options: Any) -> Any:
        return a_body(journal).ask("pay", f"Pay {total}?", choices=["yes", "no"], **options)

    tries(QuestionAsked, lambda: ask(1))
    journal.answered("yes")
    error = tries(QuestionChanged, lambda: ask(2))
    assert isinstance(error, QuestionChanged)
    assert (error.key, error.stored) == ("pay", journal.asked[0].digest)
    assert ask(2, on_change="keep") == "yes"
    assert len(journal.asked) == 1
    tries(QuestionAsked, lambda: ask(2, on_change="reask"))
    journal.answered("no")
    assert ask(2, on_change="reask") == "no"
    assert ask(2) == "no"
    tries(QuestionChanged, lambda: ask(1))


class Even(BaseModel):
    """A form whose rule no schema tells."""

    number: int

    @model_validator(mode="after")
    def check(self) -> Even:
        """The rule."""
        if self.number % 2:
            raise ValueError("must be even")
        return self


def test_an_answer_that_todays_form_refuses_is_asked_for_again() -> None:
    """The schema let it through; the job does not fail, and the new question replaces the answer."""
    journal = Parking()

    def ask() -> Even:
        return a_body(journal).ask("n", "An even number?", form=Even)

    tries(QuestionAsked, ask)
    journal.answered({"number": 7})
    tries(QuestionAsked, ask)
    assert [question.on_change for question in journal.asked] == ["fail", "again"]
    assert journal.asked[0].id != journal.asked[1].id
    journal.answered({"number": 8})
    assert ask() == Even(number=8)


def test_a_choice_that_is_gone_is_asked_for_again() -> None:
    """Also where the author keeps answers to changed questions."""
    journal = Parking()
    tries(QuestionAsked, lambda: a_body(journal).ask("q", "?", choices=["a", "b"]))
    journal.answered("b")
    tries(QuestionAsked, lambda: a_body(journal).ask("q", "?", choices=["a", "c"], on_change="keep"))
    journal.answered("c")
    assert a_body(journal).ask("q", "?", choices=["a", "c"]) == "c"


def test_a_test_answer_that_the_form_refuses_is_told() -> None:
    """There is nobody to ask again: the reasons, not an endless loop."""
    body = a_body(MemoryJournal({"n": {"number": 7}}))
    error = tries(InvalidAnswer, lambda: body.ask("n", "?", form=Even))
    assert "must be even" in str(error)


def test_an_answer_is_bounded_where_it_is_accepted() -> None:
    """A shop that allows long answers can read them."""
    journal = Parking()
    tries(QuestionAsked, lambda: a_body(journal).ask("q", "?", schema={}))
    assert journal.open is not None
    text = "x" * 2_000_000
    journal._answers["q"] = Answer(
        journal.open.id, "q", encode(text, limit=3_000_000), journal.open.digest, "user:ann", NEW_YEAR
    )
    assert a_body(journal).ask("q", "?", schema={}) == text


def test_an_unreadable_answer_is_told() -> None:
    """Never taken for no answer."""
    journal = Parking()
    tries(QuestionAsked, lambda: a_body(journal).ask("q", "?", schema={}))
    journal.answered(1)
    journal._answers["q"] = Answer(**{**vars(journal._answers["q"]), "value": Stored(b"{", "json")})
    error = tries(Unreadable, lambda: a_body(journal).ask("q", "?", schema={}))
    assert "the answer to question 'q'" in str(error)


def test_a_question_counts_for_the_jobs_size() -> None:
    """What is shown is stored, too."""
    body = a_body(max_job_bytes=100)
    tries(TooLarge, lambda: body.ask("q", "?", schema={}, show="x" * 100))
    body = a_body(max_value_bytes=100)
    tries(TooLarge, lambda: body.ask("q", "?", schema={}, show="x" * 100))


def test_what_is_asked_is_checked_before_anything_is_written() -> None:
    """Wrong options, none or two kinds of form: the attempt is over, no question is there."""
    wrong: list[dict[str, Any]] = [
        {},
        {"form": Approval, "schema": {}},
        {"choices": ["a"], "ttl": 60},
        {"choices": ["a"], "approvals": 0},
        {"schema": {"type": "int"}},
        {"schema": {}, "show": object()},
    ]
    for options in wrong:
        journal = Parking()
        body = a_body(journal)
        ask: Any = body.ask
        error = tries(InvalidInput, functools.partial(ask, "q", "?", **options))
        assert body.dead is error
        assert journal.asked == []


def test_s27_work_before_a_question_is_not_repeated() -> None:
    """A loop of steps and questions: each effect once, each question once, however often it is entered."""
    journal, effect = Parking(), Counter()

    def batch(body: Body) -> list[str]:
        said = []
        for number in range(4):
            body.step(f"prepare-{number}", effect, number)
            said.append(body.ask(f"go-{number}", f"Go on with {number}?", choices=["yes", "no"]))
        return said

    for _ in range(4):
        tries(QuestionAsked, lambda: batch(a_body(journal)))
        journal.answered("yes")
    assert batch(a_body(journal)) == ["yes"] * 4
    assert effect.calls == [0, 1, 2, 3]
    assert len(journal.asked) == 4


# --- the end of an attempt -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "leaving",
    [AttemptEnded("cancelled", "cancelled"), AttemptEnded("parked", "user_paused"), LeaseLost(None, "refused")],
    ids=str,
)
def test_control_flow_passes_every_except_exception(leaving: AttemptEnded) -> None:
    """Pause, cancel and a lost lease leave the body, and every later call raises with the same state."""
    journal, effect = Parking(), Counter()
    body = a_body(journal)
    journal.leaving = leaving

    def work() -> None:
        swallowing(lambda: body.step("s", none_step))
        effect("went on")

    assert tries(AttemptEnded, work) is leaving
    assert effect.calls == []
    again = tries(AttemptEnded, lambda: body.step("t", none_step))
    assert isinstance(again, AttemptEnded)
    assert (again.state, str(again)) == (leaving.state, str(leaving))


def test_a_swallowed_programming_error_wins_nothing() -> None:
    """The attempt is over before the error is raised; the first error is the one that counts."""
    body = a_body()
    body.step("x", none_step)
    swallowing(lambda: body.step("x", none_step))
    error = tries(AttemptEnded, lambda: body.step("y", none_step))
    assert "DuplicateName" in str(error)
    assert isinstance(body.dead, BodyError)


def test_what_a_step_swallows_inside_still_ends_it() -> None:
    """A step whose function went past the end of the attempt is not saved."""
    journal = Parking()
    body = a_body(journal)

    def past_the_end() -> str:
        try:
            body.ask("approve", "?", form=Approval)
        except BaseException:  # noqa: BLE001  # the scenario
            return "approved"
        return "not reached"

    tries(AttemptEnded, lambda: body.step("pay", past_the_end))
    assert list(journal.nodes()) == []


# --- eager and direct ------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["eager", "direct"])
def test_eager_and_direct_calls_record_no_checkpoint_and_no_progress(mode: Any) -> None:
    """They are checked all the same; steps run, and give their value as it would come back."""
    journal = MemoryJournal()
    body = a_body(journal, mode=mode)
    body.checkpoint("c", total=1)
    body.progress(1, 2, "x")
    assert journal.events == []
    assert body.step("load", load_rows) == load_rows()
    tries(NotSerialisable, lambda: a_body(mode=mode).step("s", lambda: (1,)))
    tries(NotSerialisable, lambda: a_body(mode=mode).checkpoint("d", rows=(1,)))


@pytest.mark.parametrize("mode", ["eager", "direct"])
def test_s35_an_eager_question_is_not_passed_by(mode: Any) -> None:
    """Without a test answer it raises what no `except Exception` swallows; with one it goes on."""
    effect = Counter()

    def pay(given: Answers | None = None) -> None:
        body = a_body(MemoryJournal(given), mode=mode)
        if swallowing(lambda: body.ask("approve", "Pay?", choices=["yes", "no"])) != "no":
            effect("paid")

    error = tries(NeedsAnswer, pay)
    assert not isinstance(error, Exception)
    assert effect.calls == []
    pay({"approve": "no"})
    with answers({"approve": "yes"}):
        pay()
    assert effect.calls == ["paid"]


# --- transactions ----------------------------------------------------------------------------------------


@pytest.fixture
def database() -> Iterator[sa.Engine]:
    """A shop's own database."""
    engine = sa.create_engine("sqlite://", poolclass=sa.pool.StaticPool)
    with engine.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE paid (id INTEGER PRIMARY KEY)")
    yield engine
    engine.dispose()


def paid(database: sa.Engine) -> list[int]:
    """The rows that are committed."""
    with database.connect() as connection:
        return list(connection.scalars(sa.text("SELECT id FROM paid ORDER BY id")))


def pay(session: Session, number: int) -> int:
    """A step's function: an effect in the shop's database."""
    session.execute(sa.text("INSERT INTO paid VALUES (:number)"), {"number": number})
    return number


def test_a_transaction_commits_a_step_with_the_bodys_own_rows(database: sa.Engine) -> None:
    """Both, once; entered again, the step is decided and nothing is written."""
    journal = Parking()
    for _ in range(2):
        body = a_body(journal)
        with Session(database) as session, body.transaction(session):
            assert body.step("pay", pay, session, 7) == 7
            assert body.dead is None
    assert paid(database) == [7]
    assert [event.name for event in journal.events] == ["pay"]


def test_a_connection_will_do(database: sa.Engine) -> None:
    """SQLAlchemy Core without sessions."""
    body = a_body()
    with database.connect() as connection, body.transaction(connection):
        connection.execute(sa.text("INSERT INTO paid VALUES (1)"))
        body.checkpoint("paid")
    assert paid(database) == [1]


def test_a_block_that_raises_decides_nothing(database: sa.Engine) -> None:
    """The rows are rolled back, the step is not decided, the attempt lives and may try again."""
    journal = Parking()
    body = a_body(journal)

    def block(session: Session, *, fail: bool) -> None:
        with body.transaction(session):
            body.step("pay", pay, session, 7)
            if fail:
                raise ConnectionError("bank")

    with Session(database) as session:
        tries(ConnectionError, lambda: block(session, fail=True))
        assert body.dead is None
        block(session, fail=False)
    assert paid(database) == [7]
    assert list(journal.nodes()) == ["pay"]


def test_loops_are_saved_before_a_block_commits(database: sa.Engine) -> None:
    """What is committed after an item is never found without it, however rarely the loop saves."""
    journal = Parking()
    body = a_body(journal)
    with Session(database) as session:
        for number in body.each("rows", [1, 2, 3], key=int, every=100):
            if number == 3:
                break
            with body.transaction(session):
                body.step(f"pay-{number}", pay, session, number)
    assert list(a_body(journal).each("rows", [1, 2, 3], key=int)) == [2, 3]
    assert paid(database) == [1, 2]


def test_control_flow_at_the_blocks_end_rolls_back(database: sa.Engine) -> None:
    """Judged cancelled: the body's rows and the step are gone together."""
    journal = Parking()
    journal.leaving = AttemptEnded("cancelled", "cancelled")
    body = a_body(journal)

    def block(session: Session) -> None:
        with body.transaction(session):
            body.step("pay", pay, session, 7)

    with Session(database) as session:
        tries(AttemptEnded, lambda: block(session))
    assert paid(database) == []
    assert list(journal.nodes()) == []
    assert body.dead is journal.leaving


def test_a_commit_that_fails_ends_the_attempt(database: sa.Engine) -> None:
    """Nobody knows what it did: whoever comes next reads it from the rows."""

    @contextmanager
    def broken(_: str) -> Iterator[None]:
        yield
        raise ConnectionError("commit")

    body = a_body(blocks=Blocks(using=broken))

    def block() -> None:
        with body.transaction(using="default"):
            body.step("pay", none_step)

    tries(ConnectionError, block)
    assert isinstance(body.dead, ConnectionError)
    assert paid(database) == []


def in_block(body: Body, session: Any, call: Callable[[], object]) -> None:
    """Open a block and make a call in it."""
    with body.transaction(session):
        body.checkpoint("first")
        call()


def test_a_block_takes_one_step(database: sa.Engine) -> None:
    """The second one, a question, a loop, another block: each is refused, and the block rolls back."""
    calls: list[tuple[type[BodyError], Callable[[Body], Any]]] = [
        (SecondSave, lambda body: body.step("second", none_step)),
        (SecondSave, lambda body: body.checkpoint("second")),
        (InsideTransaction, lambda body: body.ask("q", "?", choices=["a"])),
        (InsideTransaction, lambda body: body.each("rows", [1], key=str)),
        (InsideTransaction, lambda body: body.transaction(object()).__enter__()),
    ]
    for error, call in calls:
        journal = Parking()
        body = a_body(journal)
        with Session(database) as session:
            tries(error, functools.partial(in_block, body, session, functools.partial(call, body)))
        assert isinstance(body.dead, error)
        assert list(journal.nodes()) == []


def test_supervised_calls_in_a_foreign_transaction_are_refused_first() -> None:
    """Before anything runs or is written; what commits nothing may be called."""
    effect = Counter()
    calls: list[tuple[str, Callable[[Body], Any]]] = [
        ("step", lambda body: body.step("s", effect, 1)),
        ("checkpoint", lambda body: body.checkpoint("c")),
        ("ask", lambda body: body.ask("q", "?", choices=["a"])),
        ("each", lambda body: body.each("rows", [1], key=str)),
        ("transaction", lambda body: body.transaction(object()).__enter__()),
    ]
    for name, call in calls:
        body = a_body(in_transaction=lambda: True)
        body.progress(1)
        assert body.decisions.node is None
        error = tries(InsideTransaction, functools.partial(call, body))
        assert isinstance(error, InsideTransaction)
        assert error.call == name
    assert effect.calls == []


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({}, "transaction"),
        ({"session": object(), "using": "default"}, "transaction"),
        ({"session": object()}, "session"),
        ({"using": "default"}, "using"),
    ],
    ids=named,
)
def test_a_block_needs_something_to_open(given: dict[str, Any], field: str) -> None:
    """Exactly one of a session and an alias, and it must be one."""
    error = tries(InvalidInput, lambda: a_body().transaction(**given).__enter__())
    assert isinstance(error, InvalidInput)
    assert error.field == field


def test_an_async_session_is_refused() -> None:
    """Its commit would be a coroutine that nobody awaits."""

    class AsyncSession:
        async def commit(self) -> None: ...
        async def rollback(self) -> None: ...
        async def connection(self) -> None: ...

    tries(InvalidInput, lambda: a_body().transaction(AsyncSession()).__enter__())


# --- cost ------------------------------------------------------------------------------------------------


def test_ten_thousand_decided_steps_are_passed_in_a_second() -> None:
    """The journal's names are asked for once; each value is read once."""
    journal = Parking()
    body = a_body(journal)
    for number in range(10_000):
        body.step(f"row-{number}", int, number)
    body, journal.listed, start = a_body(journal), 0, time.perf_counter()
    for number in range(10_000):
        assert body.step(f"row-{number}", int, -1) == number
    assert time.perf_counter() - start < 3  # 0.2 s on an idle machine
    assert journal.listed == 1
    assert len(journal.reads) == 10_000


def test_errors_of_a_body_are_the_librarys() -> None:
    """A body may catch them by one name; control flow is not among them."""
    for error in (DuplicateName, OutsideAttempt, NotSerialisable, TooLarge, InvalidInput, Unreadable):
        assert issubclass(error, SuperviseError)
    for flow in (QuestionAsked, AttemptEnded, LeaseLost, NeedsAnswer):
        assert not issubclass(flow, Exception)


def test_times_are_timedeltas() -> None:
    """Asked with a time to live: the question has it."""
    journal = Parking()
    tries(
        QuestionAsked,
        lambda: a_body(journal).ask("q", "?", choices=["a"], ttl=timedelta(days=2), remind_before=timedelta(hours=1)),
    )
    assert (journal.asked[0].ttl, journal.asked[0].remind_before) == (timedelta(days=2), timedelta(hours=1))

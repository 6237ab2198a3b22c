"""What a shop's test sees when it rehearses a task: the result, and the bugs that only a crash shows."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from celery import Celery, Task
from celery.exceptions import Retry
from pydantic import BaseModel

from celery_supervise import SupervisedTask
from celery_supervise.body import Body, current
from celery_supervise.errors import AttemptEnded, DuplicateName, InvalidAnswer, NeedsAnswer, NotSerialisable
from celery_supervise.testing import Asked, Diverged, Rehearsal, UnusedAnswer, answers, rehearse


@dataclass
class Row:
    """A vendor to pay."""

    id: int
    iban: str
    amount: Decimal
    odd: bool = False


class Bank:
    """Remembers payments by their idempotency key."""

    def __init__(self) -> None:
        self.paid: dict[str, Decimal] = {}

    def pay(self, amount: Decimal, *, idempotency_key: str) -> None:
        """Pay once for a key."""
        self.paid[idempotency_key] = amount


class Approval(BaseModel):
    """A form."""

    approved: bool
    note: str = ""


def load_rows(count: int) -> list[Row]:
    """The file."""
    return [Row(number, f"DE{number}", Decimal("1.10"), odd=number % 20 == 0) for number in range(1, count + 1)]


def pay_batch(self: Body, bank: Bank, count: int) -> dict[str, str]:
    """The example that authors read first."""
    rows = self.step("load", load_rows, count)
    odd = [row for row in rows if row.odd]
    if odd and self.ask("odd", f"Skip {len(odd)} rows?", choices=["skip", "stop"], show=odd) == "stop":
        return {"paid": "0"}
    rows = [row for row in rows if not row.odd]
    total = sum((row.amount for row in rows), Decimal(0))
    question = f"Pay {total} to {len(rows)} vendors?"
    if not self.ask("approve", question, form=Approval, to="group:finance", ttl=timedelta(days=2)).approved:
        return {"paid": "0"}
    loop = self.each("pay", rows, key=lambda row: row.id, paid="0")
    for row in loop:
        bank.pay(row.amount, idempotency_key=self.effect_key(row.id))
        loop.paid = str(Decimal(loop.paid) + row.amount)
    return {"paid": loop.paid}


YES: dict[str, Any] = {"odd": "skip", "approve": Approval(approved=True)}


def test_a_sound_body_comes_to_the_same_end_wherever_it_dies() -> None:
    """Each vendor is paid once, whatever dies; the questions are the same."""
    bank = Bank()
    run = rehearse(pay_batch, bank, 40, answers=YES, crash_everywhere=True)
    assert run.result == {"paid": "41.80"}
    assert run.asked == ["odd", "approve"]
    assert run.steps == ["load", "pay"]
    assert run.crashes == 1 + 2 + 38 + 1
    assert len(bank.paid) == 38


def test_answers_decide_the_way() -> None:
    """A refusal ends it; a question that is not reached is not asked."""
    assert rehearse(pay_batch, Bank(), 40, answers={**YES, "approve": {"approved": False}}) == Rehearsal(
        {"paid": "0"}, ["odd", "approve"], ["load"], crashes=0
    )
    assert rehearse(pay_batch, Bank(), 40, answers={"odd": "stop"}).asked == ["odd"]


def test_a_function_may_answer() -> None:
    """It sees prompt, show and schema."""
    seen: list[Asked] = []

    def answer(asked: Asked) -> Any:
        seen.append(asked)
        return "skip" if asked.key == "odd" else {"approved": "vendors" in asked.prompt}

    assert rehearse(pay_batch, Bank(), 20, answers=answer).result == {"paid": "20.90"}
    assert seen[0].show == [{"id": 20, "iban": "DE20", "amount": "1.10", "odd": True}]
    assert seen[1].to == ("group:finance",)


def test_a_missing_answer_is_told() -> None:
    """No default is made up."""
    with pytest.raises(NeedsAnswer, match="'odd'"):
        rehearse(pay_batch, Bank(), 40)
    with answers(YES):
        assert rehearse(pay_batch, Bank(), 40).result == {"paid": "41.80"}
    with pytest.raises(InvalidAnswer, match="must be one of 'skip', 'stop'"):
        rehearse(pay_batch, Bank(), 40, answers={"odd": "maybe"})


def lost_local(self: Body) -> int:
    """The classic: an accumulator in a local variable."""
    total = 0
    for number in self.each("add", [1, 2, 3, 4], key=lambda number: number):
        total += number
    return total


def lost_between_steps(self: Body) -> list[str]:
    """What a step's function notes in a local of the body is gone where the step is decided."""
    notes: list[str] = []
    self.step("note", notes.append, "a")
    self.checkpoint("noted", notes=notes)
    return notes


def other_type(self: Body) -> Any:
    """A result that is another type after a crash."""
    done: list[int] = []
    self.step("a", done.append, 1)
    return 1 if done else True


def asks_by_chance(self: Body) -> None:
    """A question that depends on what is not durable."""
    again = "a" in self.decisions.visited
    self.step("a", int)
    if again:
        self.ask("again", "Again?", choices=["yes"])


def fails_at_re_entry(self: Body) -> None:
    """A body that cannot be entered twice."""
    again = "a" in self.decisions.visited
    self.step("a", int)
    if again:
        raise FileExistsError("report.csv")


def swallows_everything(self: Body) -> int:
    """What a body does after its process was killed was never done."""
    total = 0
    try:
        for number in self.each("add", [1, 2, 3], key=lambda number: number):
            total += number
    except BaseException:  # noqa: BLE001  # the scenario
        return 6
    return total


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (lost_local, r"killed after checkpoint 1 \('add'\): 9 instead of 10"),
        (lost_between_steps, r"killed after checkpoint 1 \('note'\): \[\] instead of \['a'\]"),
        (other_type, r"killed after checkpoint 1 \('a'\): True instead of 1"),
        (asks_by_chance, r"killed after checkpoint 1 \('a'\): it asked \['again'\] instead of \[\]"),
        (fails_at_re_entry, r"killed after checkpoint 1 \('a'\): FileExistsError: report.csv"),
        (swallows_everything, r"killed after checkpoint 1 \('add'\): 5 instead of 6"),
    ],
)
def test_a_crash_shows_what_is_not_durable(body: Any, message: str) -> None:
    """The message names the checkpoint, what came and what should have come; without a crash all is well."""
    rehearse(body)
    with pytest.raises(Diverged, match=message) as caught:
        rehearse(body, answers={"again": "yes"}, crash_everywhere=True)
    assert isinstance(caught.value, AssertionError)
    assert caught.value.number == 1


def test_a_body_is_entered_again_after_each_question() -> None:
    """As it is when a person answers: what it had in memory is gone."""

    def asks_first(self: Body) -> list[str]:
        notes = ["asked"] if "a" not in self.decisions.visited and not seen else []
        seen.append(1)
        self.ask("go", "Go on?", choices=["yes"])
        return notes

    seen: list[int] = []
    with pytest.raises(Diverged, match=r"killed after question 1 \('go'\): \[\] instead of \['asked'\]"):
        rehearse(asks_first, answers={"go": "yes"}, crash_everywhere=True)


def test_what_a_message_carries_is_new_for_each_entry() -> None:
    """A body may change its arguments: the next attempt gets them from the message."""

    def body(self: Body, rows: list[int], bank: Bank) -> int:
        self.step("a", int)
        rows.append(1)
        self.step("b", int)
        assert isinstance(bank, Bank)
        return len(rows)

    rows = [7]
    assert rehearse(body, rows, bank=Bank(), crash_everywhere=True).result == 2
    assert rows == [7]


def test_what_ended_the_attempt_is_raised_though_the_body_swallowed_it() -> None:
    """Its return value would not be recorded."""

    def twice(self: Body) -> str:
        self.step("a", int)
        with suppress(Exception):
            self.step("a", int)
        return "fine"

    def unanswered(self: Body) -> str:
        with suppress(BaseException):
            self.ask("q", "?", choices=["a"])
        return "fine"

    with pytest.raises(DuplicateName):
        rehearse(twice)
    with pytest.raises(NeedsAnswer):
        rehearse(unanswered)
    with pytest.raises(NotSerialisable):
        rehearse(lambda self: self.step("a", lambda: (1,)))


def test_the_bodys_own_errors_pass() -> None:
    """A test may expect them."""

    def body(self: Body) -> None:
        self.step("a", int)
        raise LookupError("no such batch")

    with pytest.raises(LookupError, match="no such batch"):
        rehearse(body, crash_everywhere=True)


def test_results_without_equality_are_told_by_their_text() -> None:
    """NaN is not itself; it is not reported as lost."""

    def body(self: Body) -> float:
        self.step("a", int)
        return float("nan")

    assert rehearse(body, crash_everywhere=True).crashes == 1


# --- tasks -----------------------------------------------------------------------------------------------

app = Celery("shop", set_as_current=False, broker="memory://", backend="cache+memory://")
runs: list[Any] = []


@app.task(base=SupervisedTask, bind=True)
def bound(self: SupervisedTask, count: int, *, note: str = "") -> str:
    """A task with `self`."""
    rows = self.step("load", load_rows, count)
    answer = self.ask("go", f"Pay {len(rows)}?", choices=["yes", "no"])
    return f"{answer} {self.request.id} {self.request.args} {note}"


@app.task(base=SupervisedTask, bind=True, autoretry_for=(ConnectionError,), max_retries=3)
def flaky(self: SupervisedTask) -> None:
    """A task whose error is retried by Celery."""
    self.step("a", lambda: runs.append("effect"))
    runs.append(self.request.retries)
    raise ConnectionError("bank")


@app.task
def unbound(number: int) -> int:
    """A task without `self`, which finds its body by itself."""
    return current("step").step("double", lambda: 2 * number)


class ClassBased(SupervisedTask):
    """A task that is a class."""

    name = "shop.class_based"

    def run(self, number: int) -> int:
        """Its body."""
        return self.step("double", lambda: 2 * number)


def test_a_task_is_rehearsed_like_a_function() -> None:
    """Bound, unbound, class based; its request has an id and the arguments."""
    run = rehearse(bound, 2, note="x", answers={"go": "yes"}, crash_everywhere=True)
    assert run.result == "yes rehearsal [2] x"
    assert run.steps == ["load"]
    assert rehearse(unbound, 4, crash_everywhere=True).result == 8
    class_based = app.register_task(ClassBased())
    assert isinstance(class_based, Task)
    assert rehearse(class_based, 4, crash_everywhere=True).result == 8


# --- retries ---------------------------------------------------------------------------------------------


def test_retries_that_are_used_up_end_with_their_error() -> None:
    """As many as the task has, then what Celery raises; nothing is published, nothing is waited for."""
    runs.clear()
    with pytest.raises(ConnectionError, match="bank"):
        rehearse(flaky)
    assert runs == ["effect", 0, 1, 2, 3]


@app.task(base=SupervisedTask, bind=True, max_retries=None, default_retry_delay=3600)
def patient(self: SupervisedTask, fails: int) -> str:
    """A task that retries itself until the bank is up."""
    self.step("a", lambda: runs.append("effect"))
    answer = self.ask("go", "Go?", choices=["yes", "no"])
    runs.append(self.request.retries)
    if self.request.retries < fails:
        raise self.retry(exc=ConnectionError("bank"))
    return answer


@pytest.mark.parametrize("crash", [False, True])
def test_a_retry_goes_on_from_what_was_decided(*, crash: bool) -> None:
    """Steps and answers are remembered, the request says how many retries there were, a crash changes nothing."""
    runs.clear()
    run = rehearse(patient, 2, answers={"go": "yes"}, crash_everywhere=crash)
    assert (run.result, run.retries, run.asked, run.steps) == ("yes", 2, ["go"], ["a"])
    assert runs[:4] == ["effect", 0, 1, 2]
    assert runs.count("effect") == (3 if crash else 1)


def test_a_body_that_never_gives_up() -> None:
    """It does not hang a test: after many retries their error is raised."""
    with pytest.raises(ConnectionError, match="bank"):
        rehearse(patient, 10**9, answers={"go": "yes"})


@app.task(base=SupervisedTask, bind=True)
def pages(self: SupervisedTask, page: int, last: int = 2) -> int:
    """A task that goes on with other arguments."""
    self.step("load", lambda: runs.append(page))
    if page < last:
        raise self.retry(args=(page + 1,), countdown=60)
    return page


def test_a_retry_with_other_arguments_is_a_new_run() -> None:
    """Nothing of the old one is decided."""
    runs.clear()
    run = rehearse(pages, 1)
    assert (run.result, run.retries, runs) == (2, 1, [1, 2])


@app.task(base=SupervisedTask, bind=True)
def raises_it(self: SupervisedTask) -> str:
    """A task that raises Celery's `Retry` by itself."""
    runs.append("run")
    if self.step("a", lambda: len(runs)) and len(runs) < 3:
        raise Retry("not yet")
    return "done"


def test_a_retry_that_is_raised_by_hand() -> None:
    """It is one, too."""
    runs.clear()
    run = rehearse(raises_it)
    assert (run.result, run.retries) == ("done", 2)


@app.task(base=SupervisedTask, bind=True, autoretry_for=(Exception,), max_retries=3)
def misused(self: SupervisedTask) -> None:
    """A task with a mistake that each retry would make again."""
    runs.append("run")
    self.step("a", int)
    self.step("a", int)


@pytest.mark.parametrize("call", [rehearse, lambda task: task.apply().get(), lambda task: task()])
def test_a_mistake_of_the_body_is_not_retried(call: Any) -> None:
    """`autoretry_for=(Exception,)` means the bank's errors: this one ends the test at once, as itself."""
    runs.clear()
    with pytest.raises(DuplicateName):
        call(misused)
    assert runs == ["run"]


# --- answers that nothing asked for --------------------------------------------------------------------------


def test_an_answer_that_no_question_used() -> None:
    """A question that is gone, or a misspelt key, does not pass in silence."""
    with pytest.raises(UnusedAnswer, match="no question used the answer for 'gone'; it asked 'go'") as unused:
        rehearse(bound, 2, answers={"go": "yes", "gone": "yes"})
    assert (unused.value.keys, unused.value.asked) == (("gone",), ("go",))
    with pytest.raises(UnusedAnswer, match="it asked nothing"):
        rehearse(unbound, 2, answers={"go": "yes"}, crash_everywhere=True)
    assert rehearse(unbound, 2, answers=lambda _: "yes").result == 4
    with answers({"gone": "yes"}):
        assert rehearse(unbound, 2).result == 4


def test_s35_a_task_called_as_a_function_needs_an_answer_too() -> None:
    """The same journal: no broker, no database, no settings."""
    with pytest.raises(NeedsAnswer, match="'go'"):
        bound(2)
    with answers({"go": "no"}):
        assert bound(2).startswith("no ")


@app.task(base=SupervisedTask, bind=True)
def keys(self: SupervisedTask) -> list[str]:
    """Two effects."""
    return [self.effect_key(7), self.effect_key(7)]


def test_two_direct_calls_are_two_jobs() -> None:
    """A bank that deduplicates by the key must not take the second call for the first."""
    first, second = keys(), keys()
    assert first[0] == first[1] != second[0]
    assert rehearse(keys, crash_everywhere=True).result == rehearse(keys).result


def test_a_rehearsal_leaves_nothing_behind() -> None:
    """Neither a request nor a body."""
    rehearse(bound, 2, answers={"go": "yes"})
    assert bound.request.id is None
    with pytest.raises(Exception, match="no attempt"):
        current("step")
    assert issubclass(AttemptEnded, BaseException)

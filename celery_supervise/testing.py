"""For the tests of a shop: rehearse a task, answer its questions. No broker, no database, no settings."""

from __future__ import annotations

import inspect
import reprlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from celery.exceptions import Retry

from .body import Body, use
from .compare import difference
from .errors import InvalidInput, NotSerialisable, TooLarge
from .journal import Answers, Asked, Event, MemoryJournal, current_answers
from .options import Options
from .remembered import Remembered, migrate
from .values import MAX_JOB_BYTES, keep
from .wording import shown

__all__ = ["Answers", "Asked", "Diverged", "Rehearsal", "UnusedAnswer", "answers", "redeploy", "rehearse"]

_JOB_ID: Final = "rehearsal"
_BEGINNING: Final = Event("the beginning")
MOST_RETRIES: Final = 100
"""For a body that never gives up."""


@dataclass(frozen=True)
class Rehearsal:
    """What came of a rehearsal: the result, the keys of the questions asked, the names of what was decided.

    `crashes`: at how many places the body was killed and entered again. `cleanups`: what would be sent if the job
    did not complete, by name. `retries`: how often it was entered again since it asked for a retry.
    """

    result: Any
    asked: list[str]
    steps: list[str]
    crashes: int
    cleanups: Mapping[str, Any] = field(default_factory=dict)
    retries: int = 0


class UnusedAnswer(AssertionError):
    """An answer was given that no question of the body used: a key is misspelt, or the question is gone."""

    def __init__(self, keys: Sequence[str], *, asked: Sequence[str]) -> None:
        there = f"it asked {', '.join(map(shown, asked))}" if asked else "it asked nothing"
        super().__init__(f"no question used the answer for {', '.join(map(shown, keys))}; {there}")
        self.keys = tuple(keys)
        self.asked = tuple(asked)


class Diverged(AssertionError):
    """The body came to another end when it was killed and entered again: something is not durable."""

    def __init__(self, number: int, event: Event, problem: str) -> None:
        kind = "question" if event.question else "checkpoint"
        super().__init__(f"killed after {kind} {number} ({event.name!r}): {problem}")
        self.number = number
        self.name = event.name
        self.problem = problem


def rehearse(
    task: Callable[..., Any],
    /,
    *args: Any,
    answers: Answers | None = None,
    crash_everywhere: bool = False,
    **kwargs: Any,
) -> Rehearsal:
    """Run the body of `task` with `args` and `kwargs`; where it asks, `answers` answers.

    `task`: a Celery task, or a function; one whose first parameter is `self` gets the body as that.
    `answers`: by key, a value, an instance of the form, or a function of the question (`Asked`); or one such
    function for all. `crash_everywhere`: run it again for each checkpoint and question, kill it right after,
    enter it again from the top, and compare what it returns and asks (raises `Diverged`, an
    `AssertionError`). What can be sent as a message is given to each entry anew.

    A retry (`self.retry`, `autoretry_for`) enters the body again at once, with what was decided; with other arguments,
    with nothing decided. It is tried as often as Celery would, and a hundred times at most.

    Raises whatever the body does, `NeedsAnswer` for a question without an answer, what ended the attempt even if the
    body swallowed it, and `UnusedAnswer`, an `AssertionError`, for an answer by a key that nothing asked.

    >>> def body(self):
    ...     total = 0
    ...     for number in self.each("add", [1, 2, 3], key=lambda number: number):
    ...         total += number
    ...     return total
    >>> rehearse(body).result
    6
    >>> rehearse(body, crash_everywhere=True)
    Traceback (most recent call last):
    celery_supervise.testing.Diverged: killed after checkpoint 1 ('add'): 5 instead of 6
    """
    play = _Play(task, args, kwargs, answers)
    plain = play.perform()
    if crash_everywhere:
        for number in range(1, len(plain.events) + 1):
            play.compare(plain, number)
    if isinstance(answers, Mapping) and (unused := [key for key in answers if key not in plain.asked]):
        raise UnusedAnswer(unused, asked=plain.asked)
    crashes = len(plain.events) if crash_everywhere else 0
    return Rehearsal(plain.result, plain.asked, list(plain.nodes), crashes, plain.cleanups, plain.retries)


def redeploy(
    old: Callable[..., Any], new: Callable[..., Any], /, *args: Any, answers: Answers | None = None, **kwargs: Any
) -> list[Any]:
    """Deploy `new` in the middle of `old`, everywhere: what `new` returns for each place where `old` had come to.

    `old` is run and killed right after each checkpoint and question, and before the first; then `new` is entered, with
    what is remembered, migrated first where its `Options(migrate=)` names the version of `old`. `args`, `kwargs` and
    `answers` as in `rehearse`; both get the same. Raises `Diverged` where the migration or `new` raises, which says
    after which place of `old`, and whatever `old` does.

    >>> def before(self):
    ...     return self.step("load", lambda: 1)
    >>> def after(self):
    ...     return self.step("load", lambda: 2) + self.step("more", lambda: 10)
    >>> redeploy(before, after)
    [12, 11]
    """
    play, then = _Play(old, args, kwargs, answers), _Play(new, args, kwargs, answers)
    events = play.perform().events
    return [then.go_on(play, number, event) for number, event in enumerate([_BEGINNING, *events])]


@contextmanager
def answers(given: Answers) -> Iterator[None]:
    """Answer the questions of tasks that run eagerly, or are called as functions, while this is open.

    `given` as in `rehearse`. Inside another one it adds to that one's answers. Also a decorator.

    >>> from celery_supervise.body import Body
    >>> with answers({"proceed": "yes"}):
    ...     Body(MemoryJournal(), job_id="j", mode="eager").ask("proceed", "Proceed?", choices=["yes", "no"])
    'yes'
    """
    outer = current_answers.get()
    if isinstance(given, Mapping) and isinstance(outer, Mapping):
        given = {**outer, **given}
    token = current_answers.set(given)
    try:
        yield
    finally:
        current_answers.reset(token)


@dataclass(frozen=True)
class _Outcome:
    result: Any
    events: list[Event]
    nodes: tuple[str, ...]
    cleanups: Mapping[str, Any]
    retries: int

    @property
    def asked(self) -> list[str]:
        return [event.name for event in self.events if event.question]


@dataclass(frozen=True)
class _Entry:
    """One call of the body; `retries` as Celery counts them."""

    args: Sequence[Any]
    kwargs: Mapping[str, Any]
    retries: int = 0

    def after(self, retry: Retry) -> _Entry:
        """The next one: what `retry()` has made, the same again where the body raised `Retry` by itself."""
        made: Any = getattr(retry, "sig", None)  # which its stubs do not know
        if made is None:
            return self
        return _Entry(made.args, made.kwargs, made.options.get("retries", self.retries + 1))

    def same_input(self, other: _Entry) -> bool:
        """Whether both are of the same run."""
        return _same((tuple(self.args), dict(self.kwargs)), (tuple(other.args), dict(other.kwargs)))


@dataclass
class _Life:
    """One job: what it has saved, the call that is to be made next, and how many retries there were."""

    journal: MemoryJournal
    entry: _Entry
    retries: int = 0


@dataclass(frozen=True)
class _Play:
    task: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    answers: Answers | None

    def compare(self, plain: _Outcome, number: int) -> None:
        """Raise `Diverged` if the body, killed after event `number`, does not end as in `plain`."""
        event = plain.events[number - 1]
        try:
            again = self.perform(kill_after=number)
        except Exception as error:
            raise Diverged(number, event, f"{type(error).__name__}: {error}") from error
        if not _same(plain.result, again.result):
            raise Diverged(number, event, f"{_short(again.result)} instead of {_short(plain.result)}")
        if plain.asked != again.asked:
            raise Diverged(number, event, f"it asked {again.asked} instead of {plain.asked}")

    def perform(self, *, kill_after: int = 0) -> _Outcome:
        """Run the body to its end; if it is killed, or asks for a retry, enter it again."""
        life = self._begin(kill_after)
        outcome = self._live(life)
        while outcome is None:
            outcome = self._live(life)
        return outcome

    def _begin(self, kill_after: int) -> _Life:
        return _Life(MemoryJournal(self.answers, kill_after=kill_after), _Entry(self.args, self.kwargs))

    def _live(self, life: _Life) -> _Outcome | None:
        """Run the body to its end, with its retries; None: it was killed, and may be entered again."""
        journal = life.journal
        while not journal.killed:
            try:
                result = self._enter(journal, life.entry)
                if not journal.killed:
                    return _Outcome(result, journal.events, tuple(journal.nodes()), journal.cleanups, life.retries)
            except Retry as retry:
                if not journal.killed:
                    life.entry, life.retries = self._again(journal, life.entry, retry, life.retries), life.retries + 1
            except BaseException:
                if not journal.killed:
                    raise
        journal.killed = False  # whatever the body made of it: that process is gone
        return None

    def go_on(self, old: _Play, number: int, event: Event) -> Any:
        """What the body returns where `old` was killed after event `number`; 0: before it did anything."""
        life = old._begin(number)
        if number:
            old._live(life)
        try:
            self._migrate(life.journal, _options(old.task))
            outcome = self._live(life)
        except Exception as error:
            raise Diverged(number, event, f"{type(error).__name__}: {error}") from error
        return outcome.result if outcome else None

    def _migrate(self, journal: MemoryJournal, old: Options) -> None:
        new = _options(self.task)
        if old.version in new.runs:
            return
        if old.version not in new.migrations:
            raise InvalidInput("migrate", f"says nothing of version {old.version}")
        remembered = Remembered(journal.nodes(), journal.read, job_id=_JOB_ID, version=old.version)
        changed = migrate(new.migrations[old.version], remembered, reached=None)
        journal.rearrange(changed.gone, changed.renamed, changed.put)

    def _again(self, journal: MemoryJournal, entry: _Entry, retry: Retry, retries: int) -> _Entry:
        if retries >= MOST_RETRIES:
            raise retry.exc or retry
        following = entry.after(retry)
        if not entry.same_input(following):
            journal.start_over()
        return following

    def _enter(self, journal: MemoryJournal, entry: _Entry) -> Any:
        body = Body(journal, job_id=_JOB_ID)
        with use(body):
            result = self._call(body, entry)
        if body.dead is not None:
            raise body.dead
        return result

    def _call(self, body: Body, entry: _Entry) -> Any:
        args = [_fresh(value) for value in entry.args]
        kwargs = {name: _fresh(value) for name, value in entry.kwargs.items()}
        if hasattr(self.task, "push_request"):
            return _run_task(self.task, args, kwargs, entry.retries)
        first = next(iter(inspect.signature(self.task).parameters), None)
        return self.task(*([body] if first == "self" else []), *args, **kwargs)


def _options(task: Any) -> Options:
    return getattr(task, "supervise", None) or Options()


def _run_task(task: Any, args: list[Any], kwargs: dict[str, Any], retries: int) -> Any:
    """The body of a Celery task, with a request that has an id. As in an eager run `retry` sends nothing."""
    task.push_request(id=_JOB_ID, args=args, kwargs=kwargs, retries=retries, called_directly=False, is_eager=True)
    try:
        return task.run(*args, **kwargs)
    finally:
        task.pop_request()


def _fresh(value: Any) -> Any:
    """A copy, as a message would bring it; `value` itself where none could (a test's fake, a session)."""
    try:
        return keep(value, limit=MAX_JOB_BYTES).value
    except (NotSerialisable, TooLarge):
        return value


def _same(before: Any, after: Any) -> bool:
    if difference(before, before) is not None:  # a NaN, or an object without `==`
        return repr(before) == repr(after)
    return difference(before, after) is None


def _short(value: Any) -> str:
    return reprlib.repr(value)

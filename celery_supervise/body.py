"""What a task's body calls: step, each, ask, checkpoint, and what they promise. No Celery, no SQL.

A body is the view of one attempt. What it decides goes to a journal, and is found there by name, never by
position. Once something ended the attempt, every later call raises, whatever the task's code swallowed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import timedelta
from typing import Any, Final, Literal, ParamSpec, TypeVar, overload
from uuid import UUID, uuid5

from pydantic import BaseModel
from typing_extensions import Unpack

from .aliases import nested
from .asking import AskOptions, compose, terms_of
from .block import Blocks
from .compare import difference
from .errors import (
    InvalidInput,
    OutsideAttempt,
)
from .forms import build
from .guard import Guard
from .journal import Journal
from .ledger import PLAIN_VALUES, Decisions, Ledger
from .loop import Key, Loop
from .loops import Loops
from .model import NodeKind
from .names import Names
from .questions import Questions
from .steps import PLAIN, StepOptions, Stepping, Steps
from .values import IDENTITY, MAX_JOB_BYTES, MAX_VALUE_BYTES, Codec, check_name, check_text

P = ParamSpec("P")
T = TypeVar("T")
M = TypeVar("M", bound=BaseModel)
C = TypeVar("C", bound=str | int)

Mode = Literal["worker", "eager", "direct"]

_EFFECTS: Final = UUID("5f0d6c52-0f2b-4c5c-9f0a-3f6f3c1f7a51")
MESSAGE_BYTES: Final = 1024
_BIGINT: Final = 2**63
_NO_JOBS: Final = Blocks(using=nested)


def _no() -> bool:
    return False


class Body:
    """One attempt of one job, as its task's code sees it. To be used in the thread that made it.

    `mode`: in a "worker" (and in a rehearsal) checkpoints and progress are recorded; "eager" and "direct"
    calls check them and record nothing. `in_transaction`: whether the task's code has a transaction open of
    which we know. `blocks`: how `transaction` opens the caller's own.
    """

    def __init__(
        self,
        journal: Journal,
        *,
        job_id: str,
        codec: Codec = IDENTITY,
        max_value_bytes: int = MAX_VALUE_BYTES,
        max_job_bytes: int = MAX_JOB_BYTES,
        mode: Mode = "worker",
        in_transaction: Callable[[], bool] = _no,
        blocks: Blocks = _NO_JOBS,
    ) -> None:
        self.job_id = job_id
        self.mode = mode
        self._ledger = Ledger(journal, codec=codec, max_value_bytes=max_value_bytes, max_job_bytes=max_job_bytes)
        self._guard = Guard(in_block=lambda: self._ledger.in_block, in_transaction=in_transaction)
        self._loops = Loops(self._ledger, self._guard)
        self._questions = Questions(self._ledger, self._loops)
        self._steps = Steps(self._ledger, self._guard, self._loops, begin=self._begin, tentative=self._tentative)
        self._blocks = blocks
        self._names = Names()
        self._keys = Names()
        self._cleanups = Names()

    @property
    def dead(self) -> BaseException | None:
        """What ended the attempt, None while it lives: only then its return value counts."""
        return self._guard.dead

    # --- what is decided once ----------------------------------------------------------------------------

    def step(self, name: str, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Run `fn` once and remember what it returns; give back what is remembered, also the first time.

        If `fn` raises, nothing is remembered, and the name may be used again. Raises `DuplicateName`,
        `NotSerialisable`, `TooLarge`, `Unreadable`, `InvalidInput`, and any control flow.
        """
        return self._steps.run(PLAIN, name, fn, *args, **kwargs)

    def options(self, *, timeout: timedelta | None = None, verify: Callable[[Any], object] | None = None) -> Stepping:
        """Options for one step: `self.options(timeout=timedelta(seconds=30)).step("call", bank.balance)`.

        `timeout`: how long the function may take; then `StepTimedOut` (a `TimeoutError`) is raised in it, nothing is
        remembered, the name is free again. It interrupts Python code, sleeps and sockets where the body runs in the
        main thread (prefork, solo); elsewhere it is judged when the function returns. `verify`: called with a
        remembered output before that is used again; if it returns nothing true, the job fails with
        `VerificationFailed`. Raises `InvalidInput`.
        """
        with self._guard.fatal():
            return Stepping(self._steps, StepOptions(timeout, verify))

    def checkpoint(self, node: str, **bindings: Any) -> None:
        """Record that the body has come here, with `bindings`; pause, cancel and hand-over are obeyed here.

        Entered again with equal bindings it writes nothing, with others it replaces them. Raises as `step`.
        """
        with self._guard.fatal():
            name = self._begin("checkpoint", node)
            kept = self._ledger.keep(bindings, f"checkpoint {name!r}", advice=PLAIN_VALUES)
            if self.mode == "worker" and not self._has(name, kept.value):
                self._loops.flush()
                self._ledger.save(name, NodeKind.CHECKPOINT, kept.stored if bindings else None)

    def _has(self, name: str, bindings: dict[str, Any]) -> bool:
        if not self._ledger.decided(name, NodeKind.CHECKPOINT):
            return False
        return difference(self._ledger.recall(name, NodeKind.CHECKPOINT), bindings) is None

    # --- questions ---------------------------------------------------------------------------------------

    @overload
    def ask(self, key: str, prompt: str, /, *, form: type[M], **options: Unpack[AskOptions]) -> M: ...

    @overload
    def ask(self, key: str, prompt: str, /, *, choices: Sequence[C], **options: Unpack[AskOptions]) -> C: ...

    @overload
    def ask(self, key: str, prompt: str, /, *, schema: Mapping[str, Any], **options: Unpack[AskOptions]) -> Any: ...

    def ask(
        self,
        key: str,
        prompt: str,
        /,
        *,
        form: Any = None,
        choices: Any = None,
        schema: Any = None,
        show: Any = None,
        **terms: Any,
    ) -> Any:
        """Ask a person; the answer as an instance of `form`, one of `choices`, or a value of `schema`.

        Until it is answered the job is parked, and this raises `QuestionAsked`. `show` is what the person
        sees with the prompt, as JSON. If the answered question had other content, raises `QuestionChanged`,
        unless `on_change` says "reask" or "keep". An answer that today's form refuses is asked for again.
        Raises `DuplicateName`, `InvalidInput`, `TooLarge`, and any control flow.
        """
        with self._guard.fatal():
            key = self._begin_question(key)
            asked_for = build(form=form, choices=choices, schema=schema)
            question = compose(
                key,
                prompt,
                form=asked_for,
                show=show,
                terms=terms_of(terms),
                codec=self._ledger.codec,
                limit=self._ledger.max_value_bytes,
            )
            return self._questions.answer_to(question, asked_for)

    # --- loops -------------------------------------------------------------------------------------------

    def each(
        self,
        name: str,
        items: Iterable[T],
        *,
        key: Callable[[T], Key],
        every: int | timedelta = 1,
        **carried: Any,
    ) -> Loop[T]:
        """The items that are still to do: see `Loop`. One row in the database, whatever their number.

        `key` identifies an item (str or int, different for each). `every`: save after so many items, or when
        so much time has passed; what was not saved is done again after a crash. `carried`: first values of
        what is saved together with the cursor. Raises `DuplicateName`, `NotSerialisable`, `TooLarge`,
        `InvalidInput`, `Unreadable`; while iterating also `CursorLost`, `DuplicateKey`, and control flow.
        """
        with self._guard.fatal():
            name = self._begin("each", name)
            return self._loops.begin(name, items, key=key, every=every, carried=carried)

    # --- the rest ----------------------------------------------------------------------------------------

    def progress(self, current: int | None = None, total: int | None = None, message: str | None = None) -> None:
        """Show people how far the job is. Not durable progress: that is what `checkpoint` records."""
        with self._guard.fatal():
            self._guard.check("progress")
            _check_progress(current, total, message)
            if self.mode == "worker":
                self._ledger.journal.progress(current, total, message)

    def on_abandon(self, signature: Any, *, name: str) -> None:
        """Have `signature` (of one task) sent if the job ends cancelled, expired or failed. Call it before the effect.

        Durable when this returns, for this and all later attempts; dropped if the job completes. Called again for
        the same `name`, by a later attempt, it replaces the signature. It is sent at least once for each reason to:
        the task must bear being run twice, and being run where the effect never came about.

        Where an attempt lost its job and other attempts go on, only cleanups whose name contains its `attempt_id`
        are sent, since the others would take away what the job still needs. Checks the name in eager and direct
        calls, and keeps nothing. Raises `DuplicateName`, `InvalidInput`, `TooLarge`, control flow.
        """
        with self._guard.fatal():
            self._guard.check("on_abandon")
            name = self._cleanups.claim(check_name("on_abandon name", name))
            if self.mode == "worker":
                self._ledger.journal.register(name, signature)

    @property
    def attempt_id(self) -> str:
        """The id of this attempt alone: for the names of what no other attempt makes, and of their cleanups."""
        self._guard.check_alive()
        return self._ledger.journal.attempt_id

    def effect_key(self, name: str | int) -> str:
        """A UUID, as text, for the effect `name` of this job: the same in every attempt, for deduplication.

        `7` and `"7"` are two effects. Raises `InvalidInput`, and `AttemptEnded` if the attempt is over.
        """
        self._guard.check_alive()
        if isinstance(name, int) and not isinstance(name, bool):
            kind, text = "int", str(int(name))
        else:
            kind, text = "str", check_name("effect_key", name)
        return str(uuid5(_EFFECTS, f"{kind}\0{text}\0{self.job_id}"))

    @contextmanager
    def transaction(self, session: Any = None, *, using: str | None = None) -> Iterator[None]:
        """Commit one step or checkpoint together with the body's own writes: both, or neither.

        `session`: a SQLAlchemy session or connection; `using`: a Django database's alias. Committed at the
        block's end, rolled back if it raises; then its step is not decided. Raises `SecondSave`,
        `InsideTransaction`, `InvalidInput`, what the commit raises (the attempt is over then), control flow.
        """
        with self._guard.fatal():
            self._guard.check("transaction")
            block = self._blocks.open(session, using)
            self._loops.flush()
        committing = False
        try:
            with self._ledger.transaction(block) as pending:
                with self._tentative():
                    yield
                committing = bool(pending)
        except BaseException as error:
            if committing:
                self._guard.ended_by(error)
            raise

    @property
    def decisions(self) -> Decisions:
        """What this run has decided so far. Raises `Unreadable`, and control flow."""
        with self._guard.fatal():
            self._guard.check("decisions")
            return self._ledger.decisions()

    # --- names -------------------------------------------------------------------------------------------

    def _begin(self, call: str, given: str) -> str:
        self._guard.check(call)
        return self._names.claim(check_name(f"{call} name", given))

    def _begin_question(self, given: str) -> str:
        self._guard.check("ask")
        return self._keys.claim(check_name("ask key", given))

    @contextmanager
    def _tentative(self) -> Iterator[None]:
        """Around the task's own code: if it raises, the names that it used decided nothing."""
        names, keys = self._names.mark(), self._keys.mark()
        try:
            yield
        except BaseException:
            self._names.release(names)
            self._keys.release(keys)
            raise


def _check_progress(current: object, total: object, message: object) -> None:
    for field, number in (("current", current), ("total", total)):
        if number is not None and (type(number) is not int or not 0 <= number < _BIGINT):
            raise InvalidInput(field, "must be an int, not negative, below 2**63")
    if message is not None:
        check_text("message", message, limit=MESSAGE_BYTES)


# --- finding the body ------------------------------------------------------------------------------------

current_body: ContextVar[Body | None] = ContextVar("current_body", default=None)
"""The body of the attempt that runs here. Threads that the body starts do not see it."""


@contextmanager
def use(body: Body) -> Iterator[Body]:
    """Make `body` the current one. Bodies nest: a supervised task may call another as a function."""
    token = current_body.set(body)
    try:
        yield body
    finally:
        current_body.reset(token)


def current(call: str) -> Body:
    """The current body, for `call`. Raises `OutsideAttempt` where none is."""
    body = current_body.get()
    if body is None:
        raise OutsideAttempt(call, "no attempt of a supervised task is running in this thread")
    return body

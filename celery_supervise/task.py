"""`SupervisedTask`: the base class that makes a task's calls jobs. Only dispatches: see `submitting` and `runner`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import timedelta
from functools import partial
from typing import Any, ClassVar, ParamSpec, TypeVar, overload

from celery import Celery, Task
from celery.canvas import Signature
from celery.exceptions import Ignore
from celery.result import AsyncResult
from pydantic import BaseModel
from typing_extensions import Unpack

from .asking import AskOptions
from .body import Body, current_body
from .committing import on_commit
from .declared import check_task
from .envelope import Envelope
from .errors import InvalidInput
from .getting import JobResult, raises_parked
from .groups import group_of
from .install import install
from .ledger import Decisions
from .loop import Key, Loop
from .options import Options, call_options
from .replacing import ended_plainly, replaced_by, take_over
from .retrying import resubmit
from .runner import body_for, enter
from .runtime import attempt_of, runtime_of
from .steps import Stepping
from .submitting import accept_message, submit

P = ParamSpec("P")
T = TypeVar("T")
M = TypeVar("M", bound=BaseModel)
C = TypeVar("C", bound=str | int)

RETRY_ARGUMENTS = ("args", "kwargs", "exc", "throw", "eta", "countdown", "max_retries")
"""Of Celery's `retry`, in order (5.4-5.7)."""

CELERYS_OWN = "celery."
"""Celery's own tasks (`celery.chord_unlock`, …) stay what they are, also where this is the app's `task_cls`."""


class SupervisedTask(Task):  # type: ignore[type-arg]  # generic in its stubs only
    """A Celery task whose every call is a job: a row in Postgres, durable steps, questions that park it.

    `supervise` holds the task's options. In the body (`bind=True`) `self.step`, `self.each`, `self.ask` and
    their like are what `Body` says; called as a function or eagerly they work without broker and database.
    """

    abstract = True
    acks_late = True
    reject_on_worker_lost = True
    acks_on_failure_or_timeout = True
    retry_on_worker_lost = False  # 5.7: it takes precedence, and would publish a retry behind the row's back
    track_started = False  # Celery would store STARTED before the claim, also for a duplicate (5.4-5.7)
    Request = "celery_supervise.request:SupervisedRequest"
    supervise: ClassVar[Options] = Options()

    # what celery-types leaves out (5.4-5.7)
    _get_app: Any
    _get_exec_options: Any

    @classmethod
    def on_bound(cls, app: Celery) -> None:
        """Connect the app. Raises `ConfigError` for options of the task that would lose jobs."""
        super().on_bound(app)
        check_task(cls, SupervisedTask)
        install(app)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the body: as a job where a worker delivers it, else as a function."""
        call = partial(self._next(super().__call__), *args, **kwargs)
        if str(self.name).startswith(CELERYS_OWN):
            return call()
        return enter(self, call)

    def _next(self, call: Any) -> Callable[..., Any]:
        """What to call inside of ours: a mixin's `__call__`; past Celery's own, which is for direct calls.

        In a request that exists it would put another one on top, outside of a worker's processes: an empty one up
        to 5.4, a copy since. The body would see no retries, its children would be lost.
        """
        celerys_own = getattr(call, "__func__", None) is Task.__call__
        body: Callable[..., Any] = self.run if celerys_own and not self.request.called_directly else call
        return body

    def apply_async(  # noqa: PLR0917  # Celery's signature
        self,
        args: Any = None,
        kwargs: Any = None,
        task_id: str | None = None,
        producer: Any = None,
        link: Any = None,
        link_error: Any = None,
        shadow: str | None = None,
        **options: Any,
    ) -> AsyncResult[Any]:
        """Celery's own `apply_async`: the same arguments, the same result; the row first, then the message.

        `supervise`: a dict with `owner`, `idempotency_key`, `input_version`, `deadline`, `max_active`.
        Raises what Celery raises for wrong arguments, and `DatabaseUnavailable`; a broker that is away is no error.
        """
        said = options.pop("supervise", None)
        app: Celery = self._get_app()
        if self.is_plain():
            self._refuse_options(said, app)
            return super().apply_async(args, kwargs, task_id, producer, link, link_error, shadow, **options)
        call = call_options(said)
        args, kwargs, options = self._prepared(
            args, kwargs, shadow=shadow, options={**options, "link": link, "link_error": link_error}
        )
        runtime = runtime_of(app)
        if (attempt := replaced_by(app, task_id)) is not None:
            return take_over(runtime, attempt, self, args, kwargs, said=said, options=options)
        if task_id is not None and task_id == self.request.id and self._is_running():
            return resubmit(runtime, self, args, kwargs, options=options)
        group = group_of(app, producer, options)
        return submit(runtime, self, args, kwargs, task_id=task_id, options=options, call=call, group=group)

    def delay_on_commit(self, *args: Any, **kwargs: Any) -> AsyncResult[Any]:
        """`delay` that counts with the caller's commit: see `apply_async_on_commit`."""
        return self.apply_async_on_commit(args, kwargs)

    def apply_async_on_commit(
        self, args: Any = None, kwargs: Any = None, *, session: Any = None, using: str | None = None, **options: Any
    ) -> AsyncResult[Any]:
        """`apply_async` that counts with the caller's commit: a job then, sent within a second; else there is none.

        `session`: a SQLAlchemy Session or Connection; `using`: the alias of a Django database. If neither is said: what
        the app's settings name, else Django's own where it is in use. Returns a result at once, also of a job that may
        never be. Raises as `apply_async`, and the caller's own database errors.
        """
        return on_commit(self, args, kwargs, session=session, using=using, options=options)

    def AsyncResult(self, task_id: str, **options: Any) -> AsyncResult[Any]:  # noqa: N802  # Celery's name
        """A result by its id. Where the app says so (`supervise_get_parked`), one whose `get` waits for nobody."""
        app = self._get_app()
        if not raises_parked(app):
            return super().AsyncResult(task_id, **options)
        return JobResult(task_id, backend=self.backend, task_name=self.name, app=app, **options)

    def retry(self, *args: Any, **options: Any) -> Any:
        """Celery's own `retry`. What it is given is noted: attempts that were lost count towards its limit, too.

        An attempt that is over is not retried, also not by `autoretry_for`: raises what ended it.
        """
        body = current_body.get()
        if body is not None and body.dead is not None:
            raise body.dead
        attempt = attempt_of(self.request)
        if attempt is not None:
            given = {**dict(zip(RETRY_ARGUMENTS, args, strict=False)), **options}
            limit, error = given.get("max_retries"), given.get("exc")
            attempt.max_retries = self.max_retries if limit is None else limit
            attempt.spent = error if isinstance(error, Exception) else None
        return super().retry(*args, **options)

    def replace(self, sig: Signature[Any]) -> Any:
        """Celery's own `replace`. One supervised task takes the job over; after anything else the job is over."""
        attempt = attempt_of(self.request)
        if attempt is not None:
            sig = ended_plainly(attempt.runtime, attempt, sig)
        return super().replace(sig)

    def on_replace(self, sig: Signature[Any]) -> Any:
        """Called by Celery's own `replace` (5.4-5.7), to send the replacement and leave."""
        attempt = attempt_of(self.request)
        if attempt is None:
            return super().on_replace(sig)
        attempt.replacing = True
        try:
            return super().on_replace(sig)
        except Ignore:
            attempt.replaced_by = str(sig.get("task"))
            raise
        finally:
            attempt.replacing = False

    def accept(self, message: Envelope) -> bool:
        """Make a job of a finished message, once for its id; False where its worker will (`supervise_submit`).

        Raises `Conflict` (busy), `DatabaseUnavailable`.
        """
        app: Celery = self._get_app()
        if self.is_plain():
            return False
        accept_message(runtime_of(app), self, message)
        return True

    def _refuse_options(self, said: Any, app: Celery) -> None:
        """With `supervise_submit="worker"` the message is plain Celery's: it could not take them along."""
        if said and not app.conf.task_always_eager:
            raise InvalidInput("supervise", 'cannot be given while supervise_submit is "worker"')

    def is_plain(self) -> bool:
        """Whether a call is Celery's own, and makes no row: eagerly, or where workers make the rows."""
        app: Celery = self._get_app()
        return bool(
            app.conf.task_always_eager
            or str(self.name).startswith(CELERYS_OWN)
            or runtime_of(app).settings.submit == "worker"
        )

    def _is_running(self) -> bool:
        return attempt_of(self.request) is not None

    def _prepared(
        self, args: Any, kwargs: Any, *, shadow: str | None, options: dict[str, Any]
    ) -> tuple[Any, Any, dict[str, Any]]:
        """What `Task.apply_async` does before it sends (5.4-5.7): typing, shadow name, defaults, pydantic."""
        if self.soft_time_limit and self.time_limit and self.soft_time_limit > self.time_limit:
            raise ValueError("soft_time_limit must be less than or equal to time_limit")
        header = getattr(self, "__header__", None)
        if self.typing and header is not None:
            header(*(args or ()), **(kwargs or {}))
        name: Any = self.shadow_name  # may return a name; its stubs say None
        shadow = shadow or name(args, kwargs, options)
        merged = {**self._get_exec_options(), **options, "shadow": shadow}
        merged.setdefault("ignore_result", self.ignore_result)
        dump = getattr(self, "_dump_pydantic_arguments", None)  # 5.6 and later, set where pydantic=True
        if dump is not None and merged.get("serializer") != "pickle":
            args, kwargs = dump(args, kwargs)
        return args, kwargs, merged

    # --- the body's calls: see `Body` ----------------------------------------------------------------------

    def _body(self, call: str) -> Body:
        return body_for(self, call)

    def step(self, name: str, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Run `fn` once, remember what it returns: see `Body.step`."""
        return self._body("step").step(name, fn, *args, **kwargs)

    def options(self, *, timeout: timedelta | None = None, verify: Callable[[Any], object] | None = None) -> Stepping:
        """A time limit and a check for one step: see `Body.options`."""
        return self._body("options").options(timeout=timeout, verify=verify)

    def checkpoint(self, node: str, **bindings: Any) -> None:
        """Record that the body has come here: see `Body.checkpoint`."""
        self._body("checkpoint").checkpoint(node, **bindings)

    @overload
    def ask(self, key: str, prompt: str, /, *, form: type[M], **options: Unpack[AskOptions]) -> M: ...

    @overload
    def ask(self, key: str, prompt: str, /, *, choices: Sequence[C], **options: Unpack[AskOptions]) -> C: ...

    @overload
    def ask(self, key: str, prompt: str, /, *, schema: Mapping[str, Any], **options: Unpack[AskOptions]) -> Any: ...

    def ask(self, key: str, prompt: str, /, **options: Any) -> Any:
        """Ask a person; until the answer the job is parked: see `Body.ask`."""
        return self._body("ask").ask(key, prompt, **options)

    def each(
        self,
        name: str,
        items: Iterable[T],
        *,
        key: Callable[[T], Key],
        every: int | timedelta = 1,
        **carried: Any,
    ) -> Loop[T]:
        """A durable loop: see `Body.each`."""
        return self._body("each").each(name, items, key=key, every=every, **carried)

    def progress(self, current: int | None = None, total: int | None = None, message: str | None = None) -> None:
        """Show how far the job is: see `Body.progress`."""
        self._body("progress").progress(current, total, message)

    def effect_key(self, name: str | int) -> str:
        """The same key for the same effect in every attempt: see `Body.effect_key`."""
        return self._body("effect_key").effect_key(name)

    def on_abandon(self, signature: Signature[Any], *, name: str) -> None:
        """Have `signature` sent if the job does not complete: see `Body.on_abandon`."""
        self._body("on_abandon").on_abandon(signature, name=name)

    @property
    def attempt_id(self) -> str:
        """The id of this attempt alone: see `Body.attempt_id`."""
        return self._body("attempt_id").attempt_id

    def transaction(self, session: Any = None, *, using: str | None = None) -> AbstractContextManager[None]:
        """One step and the body's own writes in one commit: see `Body.transaction`."""
        return self._body("transaction").transaction(session, using=using)

    @property
    def decisions(self) -> Decisions:
        """What this run has decided: see `Body.decisions`."""
        return self._body("decisions").decisions

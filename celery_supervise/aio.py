"""The service for `asyncio`: `supervise.aio`. The same methods, awaited; has no rule, and no statement, of its own.

A call runs in a thread of a few that are the service's own, so that the event loop goes on. One that is given an
asynchronous session runs on the loop, by that session's `run_sync`: there SQLAlchemy awaits each round trip.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import partial, wraps
from typing import Any, Concatenate, Final, ParamSpec, TypeVar

from .answering import Answering
from .bulk import Bulk
from .errors import InvalidInput
from .extending import Extending
from .gathering import Gathering
from .handing import Handing
from .holds import Holds
from .operating import Operating
from .reader import Reader
from .rerunning import Rerunning
from .service import Service
from .steering import Steering
from .submission import Submission

P = ParamSpec("P")
T = TypeVar("T")
S = TypeVar("S", bound=Reader)

THREADS: Final = 2
"""As many as a process has connections: what comes beyond waits for a thread, not, and in vain, for a connection."""


def _awaited(method: Callable[Concatenate[S, P], T]) -> Callable[Concatenate[Aio, P], Awaitable[T]]:
    """The method of the service, to be awaited."""

    @wraps(method)
    async def call(self: Aio, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self.run(partial(method, self.service), *args, **kwargs)  # type: ignore[arg-type]

    return call


def _joining(method: Callable[..., T]) -> Callable[..., Awaitable[T]]:
    """Likewise, one that takes a session: here an asynchronous one, too, which its own annotations do not allow."""
    return _awaited(method)


class Aio:
    """`Supervisor`, for coroutines: each method takes, returns and raises what the one of its name there does."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self._pools: dict[int, ThreadPoolExecutor] = {}

    # what people and producers do; the first three join a session
    submit = _joining(Submission.submit)
    answer = _joining(Answering.answer)
    resume = _joining(Steering.resume)
    submit_many = _awaited(Gathering.submit_many)
    reassign = _awaited(Handing.reassign)
    withdraw = _awaited(Handing.withdraw)
    pause = _awaited(Steering.pause)
    cancel = _awaited(Steering.cancel)
    extend = _awaited(Extending.extend)
    extend_question = _awaited(Extending.extend_question)
    rerun = _awaited(Rerunning.rerun)

    # on many
    choose = _awaited(Bulk.choose)
    each = _awaited(Bulk.each)
    cancel_each = _awaited(Bulk.cancel_each)
    pause_each = _awaited(Bulk.pause_each)
    resume_each = _awaited(Bulk.resume_each)
    extend_each = _awaited(Bulk.extend_each)
    rerun_each = _awaited(Bulk.rerun_each)

    # what operators do
    hold = _awaited(Holds.hold)
    release = _awaited(Holds.release)
    holds = _awaited(Holds.holds)
    kick = _awaited(Operating.kick)
    why = _awaited(Operating.why)
    stats = _awaited(Operating.stats)
    prune = _awaited(Operating.prune)
    prunable = _awaited(Operating.prunable)
    erase = _awaited(Operating.erase)
    erase_owner = _awaited(Operating.erase_owner)

    # what can be read
    job = _awaited(Reader.job)
    jobs = _awaited(Reader.jobs)
    question = _awaited(Reader.question)
    questions = _awaited(Reader.questions)
    votes = _awaited(Reader.votes)
    answers = _awaited(Reader.answers)
    attempts = _awaited(Reader.attempts)
    log = _awaited(Reader.log)
    result = _awaited(Reader.result)
    successor = _awaited(Rerunning.successor)
    rejected = _awaited(Reader.rejected)
    cleanups = _awaited(Reader.cleanups)
    content = _awaited(Reader.content)
    value_of = _awaited(Reader.value_of)
    rejected_value = _awaited(Reader.rejected_value)

    async def run(self, call: Callable[..., T], *args: Any, session: Any = None, **kwargs: Any) -> T:
        """Any call that works with the library, such as a task's `delay`: `await supervise.aio.run(ship.delay, 7)`.

        With an `AsyncSession` or `AsyncConnection` as `session` it joins that one's transaction. Context variables are
        the caller's. A call that is cancelled while it waits for a thread never happens; one that runs goes on to its
        end, as one whose reply was lost: look, or repeat it.
        """
        if kwargs.get("using") is not None:
            raise InvalidInput("using", "joins a transaction of this thread; call the service itself, in sync_to_async")
        if hasattr(session, "run_sync"):
            return await session.run_sync(lambda here: call(*args, session=here, **kwargs))  # type: ignore[no-any-return]
        joined = {} if session is None else {"session": session}
        work = partial(copy_context().run, partial(call, *args, **joined, **kwargs))
        return await asyncio.get_running_loop().run_in_executor(self._pool(), work)

    def _pool(self) -> ThreadPoolExecutor:
        """This process's: threads do not survive a fork."""
        pool = self._pools.get(os.getpid())
        if pool is None:
            pool = ThreadPoolExecutor(THREADS, thread_name_prefix="supervise-aio")
            self._pools = {os.getpid(): pool}
        return pool

    def close(self) -> None:
        """End the threads; the next call makes new ones."""
        pool = self._pools.pop(os.getpid(), None)
        if pool is not None:
            pool.shutdown()

"""How a step runs once and is remembered, and what may be said of one: its time limit, its check. Knows no names."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final, ParamSpec, TypeVar

from .errors import InvalidInput, NotSerialisable, VerificationFailed
from .guard import Guard
from .hints import return_type
from .ledger import Ledger
from .limits import limited
from .loops import Loops
from .model import NodeKind

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True)
class StepOptions:
    """What `options` says of a step.

    `timeout`: how long its function, or its check, may take. `verify`: called with a remembered output before it is
    used again; must return something true.
    """

    timeout: timedelta | None = None
    verify: Callable[[Any], object] | None = None

    def __post_init__(self) -> None:
        """Refuse what cannot be where it is written."""
        _check_timeout(self.timeout)
        if self.verify is not None and not callable(self.verify):
            raise InvalidInput("verify", "must be a function of the remembered output")


def _check_timeout(given: object) -> None:
    if given is not None and not (isinstance(given, timedelta) and given > timedelta(0)):
        raise InvalidInput("timeout", "must be a timedelta of more than nothing")


PLAIN: Final = StepOptions()


class Steps:
    """The steps of one attempt. `begin` claims a step's name; `tentative` gives names back if the block raises."""

    def __init__(
        self,
        ledger: Ledger,
        guard: Guard,
        loops: Loops,
        *,
        begin: Callable[[str, str], str],
        tentative: Callable[[], AbstractContextManager[None]],
    ) -> None:
        self._ledger = ledger
        self._guard = guard
        self._loops = loops
        self._begin = begin
        self._tentative = tentative

    def run(self, options: StepOptions, name: str, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Run `fn` once and remember what it returns. Raises as `Body.step` and `Body.options` say."""
        with self._tentative():
            with self._guard.fatal():
                name = self._begin("step", name)
                known = self._ledger.decided(name, NodeKind.STEP)
                remembered: Any = self._ledger.recall(name, NodeKind.STEP, fn) if known else None
            with limited(name, options.timeout, busy=lambda: self._guard.busy):
                value: T = self._verified(options, name, remembered) if known else fn(*args, **kwargs)
        if known:
            return value
        with self._guard.fatal():
            self._guard.check("step")  # what fn swallowed may have ended the attempt
            return self._remember(name, value, fn)

    def _verified(self, options: StepOptions, name: str, remembered: Any) -> Any:
        if options.verify is not None and not options.verify(remembered):
            self._guard.fail(VerificationFailed(name))
        return remembered

    def _remember(self, name: str, value: T, fn: Callable[..., Any]) -> T:
        if inspect.iscoroutine(value):
            value.close()
            raise NotSerialisable("$", f"step {name!r} returned a coroutine; run it inside the step")
        advice = f"annotate the return type of the function of step {name!r}"
        kept = self._ledger.keep(value, f"step {name!r}", type_=return_type(fn), advice=advice)
        self._loops.flush()
        self._ledger.save(name, NodeKind.STEP, kept.stored)
        again: T = kept.value
        return again


@dataclass(frozen=True)
class Stepping:
    """What `options` gives: `step`, with these options."""

    steps: Steps
    options: StepOptions

    def step(self, name: str, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """As `Body.step`, with the options given. Raises also `StepTimedOut`, `VerificationFailed`."""
        return self.steps.run(self.options, name, fn, *args, **kwargs)

"""One operation on many jobs: first chosen and shown, then done, each under its own lock. No rule of any operation."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from .errors import DatabaseUnavailable, InvalidInput, SuperviseError
from .extending import Extending
from .intake import check_actor, check_extension, check_filters, check_page, check_reason, check_states, check_why
from .lifecycle import State
from .model import Moved, Submitted, When
from .rerunning import Rerunning
from .steering import Steering
from .store.bulk import CHOOSE
from .wording import none_of, shown


@dataclass(frozen=True)
class Target:
    """A job to operate on, as it was when it was chosen. `generation`: done only if it is still this; None: anyway."""

    job_id: str
    generation: int | None
    state: State | None = None
    task: str | None = None


@dataclass(frozen=True)
class Choice:
    """The jobs that were chosen, oldest first, and how many there are in all."""

    targets: Sequence[Target]
    total_count: int


@dataclass(frozen=True)
class Outcome:
    """What came of one job: its move, what was made of it, or why not. `tried`: False once the database was away."""

    job_id: str
    moved: Moved | Submitted | None
    error: SuperviseError | None = None
    tried: bool = True


class Bulk(Steering, Rerunning, Extending):
    """Operations on many jobs."""

    def choose(
        self,
        action: str,
        *,
        task: str | None = None,
        owner: str | None = None,
        states: Sequence[State] | None = None,
        queue: str | None = None,
        reason: str | None = None,
        everything: bool = False,
        limit: int = 1000,
    ) -> Choice:
        """The jobs on which `action` would do something, oldest first; changes nothing.

        `action`: "cancel", "pause", "resume", "extend" (what has a deadline) or "rerun" (what ended and was not run
        again yet; what completed only where `states` says so). `reason`: a stop reason, or its beginning up to a
        colon (``awaiting_user_answer``). All jobs are meant only by `everything`. Raises `InvalidInput`: also where
        nothing says which jobs.
        """
        check_page(limit)
        given = {"owner_id": owner, "task": task, "queue": queue, "reason": reason}
        check_filters(**given)
        check_reason(reason)
        if action not in list(CHOOSE):  # also where it cannot be a key
            raise InvalidInput("action", none_of(action, CHOOSE))
        if everything is (states is not None or any(value is not None for value in given.values())):
            raise InvalidInput("filter", "say which jobs are meant, or that all are, one of the two")
        known = check_states(states)
        wanted = None if known is None else [str(state) for state in known]
        rows = self.door.all(CHOOSE[action], **given, states=wanted, limit=limit)
        targets = [Target(row["job_id"], row["generation"], State(row["current_state"]), row["task"]) for row in rows]
        return Choice(targets, rows[0]["total"] if rows else 0)

    def each(self, targets: Iterable[Target], act: Callable[[Target], Moved | Submitted]) -> Sequence[Outcome]:
        """Call `act` for each of `targets`, in the order of their ids, each a transaction of its own.

        One that is refused does not keep the others. Where the database goes away, the rest is not tried. Raises
        `InvalidInput` where they are no targets, before anything is done.
        """
        done: list[Outcome] = []
        away: DatabaseUnavailable | None = None
        for target in sorted(_checked(targets), key=lambda target: target.job_id):
            if away is None:
                done.append(_one(target, act))
                away = done[-1].error if isinstance(done[-1].error, DatabaseUnavailable) else None
            else:
                done.append(Outcome(target.job_id, None, away, tried=False))
        return done

    def cancel_each(
        self, targets: Iterable[Target], *, actor: str, why: str | None = None, owner: str | None = None
    ) -> Sequence[Outcome]:
        """`cancel` for each: see `each`. Raises `InvalidInput`."""
        check_actor(actor), check_why(why)
        return self.each(
            targets,
            lambda one: self.cancel(one.job_id, actor=actor, why=why, owner=owner, expected_generation=one.generation),
        )

    def pause_each(self, targets: Iterable[Target], *, actor: str, owner: str | None = None) -> Sequence[Outcome]:
        """`pause` for each: see `each`. Raises `InvalidInput`."""
        check_actor(actor)
        return self.each(
            targets, lambda one: self.pause(one.job_id, actor=actor, owner=owner, expected_generation=one.generation)
        )

    def resume_each(self, targets: Iterable[Target], *, actor: str, owner: str | None = None) -> Sequence[Outcome]:
        """`resume` for each: see `each`. Raises `InvalidInput`."""
        check_actor(actor)
        return self.each(
            targets, lambda one: self.resume(one.job_id, actor=actor, owner=owner, expected_generation=one.generation)
        )

    def extend_each(
        self,
        targets: Iterable[Target],
        *,
        actor: str,
        deadline: When | None = None,
        by: timedelta | None = None,
        owner: str | None = None,
    ) -> Sequence[Outcome]:
        """`extend` for each: see `each`. Raises `InvalidInput`."""
        check_actor(actor)
        check_extension("deadline", deadline, by)
        same: dict[str, Any] = {"deadline": deadline, "by": by, "actor": actor, "owner": owner}
        return self.each(targets, lambda one: self.extend(one.job_id, expected_generation=one.generation, **same))

    def rerun_each(
        self,
        targets: Iterable[Target],
        *,
        actor: str,
        from_checkpoints: bool = False,
        with_callbacks: bool = False,
        owner: str | None = None,
    ) -> Sequence[Outcome]:
        """`rerun` for each: see `each`. Raises `InvalidInput`."""
        check_actor(actor)
        same = {"from_checkpoints": from_checkpoints, "with_callbacks": with_callbacks}
        return self.each(
            targets,
            lambda one: self.rerun(one.job_id, actor=actor, owner=owner, expected_generation=one.generation, **same),
        )


def _checked(targets: Any) -> Sequence[Target]:
    if isinstance(targets, str) or not isinstance(targets, Iterable):
        raise InvalidInput("targets", f"must be several targets, not {shown(targets)}")
    found: list[Any] = list(targets)
    for one in found:
        if not (isinstance(one, Target) and isinstance(one.job_id, str)):
            raise InvalidInput("targets", f"must be targets, as choose gives them, not {shown(one)}")
    return found


def _one(target: Target, act: Callable[[Target], Moved | Submitted]) -> Outcome:
    try:
        return Outcome(target.job_id, act(target))
    except SuperviseError as error:
        return Outcome(target.job_id, None, error)

"""Who is meant by the names in `to=`, and who counts as one person. Pure: asks nobody, reads and writes nothing.

A name is a person's, or `group:` and a group's. The way by which somebody came in, `user:` or `cli:`, is part of an
actor but not of a person: `user:ann`, `cli:ann` and `ann` are the same one, so that no second way is a second vote.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from .compare import name_of
from .errors import ConfigError, InvalidInput
from .values import check_name
from .wording import shown

GROUP: Final = "group:"
WAYS: Final = ("user:", "cli:")

GroupsOf = Callable[[str], Iterable[str]]
"""What the setting `supervise_groups` names: the groups of an actor (`user:ann`), with or without `group:`."""


def person(name: str) -> str:
    """Who an actor or an owner is, without the way by which they came in.

    >>> [person(name) for name in ("ann", "user:ann", "cli:ann", "cli:user:ann")]
    ['ann', 'ann', 'ann', 'ann']
    """
    for way in WAYS:
        if name.startswith(way) and name != way:
            return person(name.removeprefix(way))
    return name


def recipients(to: object) -> tuple[str, ...]:
    """The names in `to`, each once. Raises `InvalidInput`."""
    names = [to] if isinstance(to, str) else to
    if not isinstance(names, (list, tuple, set, frozenset)):
        raise InvalidInput("to", f"must be a str or a list of str, not {name_of(to)}")
    return tuple(dict.fromkeys(check_name("to", name) for name in names))


def names_groups(to: Iterable[str]) -> bool:
    """Whether any of these is a group."""
    return any(name.startswith(GROUP) for name in to)


@dataclass(frozen=True)
class Answerer:
    """Somebody who wants to answer, with the groups that they are known to be in."""

    actor: str
    groups: frozenset[str] = frozenset()

    @property
    def person(self) -> str:
        """Who it is: one vote a person."""
        return person(self.actor)

    @property
    def selves(self) -> Sequence[str]:
        """The names by which this person is meant. Nobody is called like a group."""
        name = self.person
        return [] if name.startswith(GROUP) else [name, *(way + name for way in WAYS)]

    @property
    def names(self) -> Sequence[str]:
        """The names in `to` by which a question is for them."""
        return [*self.selves, *sorted(GROUP + group.removeprefix(GROUP) for group in self.groups)]


def check_recipients(to: Sequence[str], *, approvals: int, barred: str | None, groups: bool) -> None:
    """Refuse recipients who could never decide, since a question to them only waits until its time is over.

    `barred`: the owner, where the owner may not answer. `groups`: whether memberships can be known. Who is in a group
    is known when somebody answers. Raises `InvalidInput`.
    """
    if names_groups(to):
        if not groups:
            raise InvalidInput("to", "names a group, and supervise_groups is not set: nobody would be a member")
        return
    people = {person(name) for name in to}
    may = people - ({person(barred)} if barred else set())
    if to and not may:
        raise InvalidInput("to", f"names only the job's owner, {barred}, who may not answer without self_approval=True")
    if to and len(may) < approvals:
        without = f", without {barred}, who owns the job" if may != people else ""
        raise InvalidInput("to", f"names {len(may)} who may answer{without}, and approvals={approvals} must agree")


def asked_of(given: GroupsOf, path: str) -> GroupsOf:
    """`given`, the function that the setting `supervise_groups` names; what it cannot give is a `ConfigError`."""

    def groups_of(actor: str) -> Iterable[str]:
        try:
            return [check_name("group", name) for name in _listed(given(actor))]
        except Exception as error:
            problem = f"{path} did not give the groups of {shown(actor)} as names: {type(error).__name__}: {error}"
            raise ConfigError("supervise_groups", problem) from error

    return groups_of


def _listed(found: Iterable[str]) -> Iterable[str]:
    if isinstance(found, str):
        raise TypeError("one text, not several")
    return found

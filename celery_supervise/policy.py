"""Who somebody is who comes from outside, and how the shop's own login says so. Pure: asks nobody, allows nothing."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any, Protocol

from .values import check_name

USER = "user:"


class Scope(str, Enum):
    """What somebody may do. Each edge asks for one, the service for the owner."""

    READONLY = "readonly"  # look
    ANSWERER = "answerer"  # look, and answer what is asked of them
    OWNER = "owner"  # all of that, and submit and steer what is their own
    OPERATOR = "operator"  # everything

    __str__ = str.__str__

    def covers(self, wanted: Scope) -> bool:
        """Whether who may do this may do that, too.

        >>> Scope.OPERATOR.covers(Scope.ANSWERER), Scope.READONLY.covers(Scope.ANSWERER)
        (True, False)
        """
        order = list(Scope)
        return order.index(self) >= order.index(wanted)


@dataclass(frozen=True)
class Identity:
    """Somebody whom the shop knows.

    `subject`: their name, as the log will have it. `owner`: whose jobs there are for them; None: everybody's.
    """

    subject: str
    scope: Scope = Scope.READONLY
    owner: str | None = None

    def __post_init__(self) -> None:
        """Refuse what could not stand in the log. Raises `InvalidInput`."""
        check_name("subject", self.subject)
        check_name("subject", self.actor)
        if self.owner is not None:
            check_name("owner", self.owner)

    @property
    def actor(self) -> str:
        """Who does it, for the service's `actor`.

        >>> Identity("ann").actor
        'user:ann'
        """
        return USER + self.subject


class Authenticator(Protocol):
    """What the shop plugs in: who sends a request. Everything that an edge knows of a person comes from here."""

    def __call__(self, request: Any) -> Identity | None:
        """The sender of `request`, the web framework's own; None where nobody is known to have sent it."""

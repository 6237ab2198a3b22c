"""API tokens: made once and shown once, kept as a hash, taken back at once. What they allow says `policy`."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from hashlib import sha256
from typing import Final
from uuid import UUID, uuid4

from .errors import InvalidInput
from .intake import check_positive
from .policy import Identity, Scope
from .store.door import Door, Row
from .store.tokens import FIND, LIST, MAKE, NOTE_USE, REVOKE
from .values import check_name
from .wording import none_of, shown

PREFIX: Final = "sup_"
"""By which tools that look for leaked secrets find one of ours."""
SECRET_BYTES: Final = 32


@dataclass(frozen=True)
class Token:
    """A token without its secret. `owner`: whose jobs there are for it; None: everybody's."""

    id: UUID
    name: str
    scope: Scope
    subject: str
    owner: str | None
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None
    used_at: datetime | None

    @property
    def identity(self) -> Identity:
        """Whom it stands for."""
        return Identity(self.subject, self.scope, self.owner)


class Tokens:
    """The tokens of one namespace."""

    def __init__(self, door: Door) -> None:
        self._door = door

    def make(
        self,
        name: str,
        *,
        subject: str,
        scope: Scope | str,
        owner: str | None = None,
        lasts: timedelta | None = None,
    ) -> tuple[Token, str]:
        """A new token and its secret, which nobody can be told a second time.

        `name`: what it is for. `subject`: as whom it acts; stands in the log. `lasts`: None for ever. One that may
        submit and steer its own jobs (scope ``owner``) needs an owner. Raises `InvalidInput`.
        """
        given = _scope(scope)
        check_name("name", name)
        check_name("subject", subject)
        check_positive("lasts", lasts)
        Identity(subject, given, owner)
        if given is Scope.OWNER and owner is None:
            raise InvalidInput("owner", "is needed for the scope owner: whose jobs are its own?")
        secret = PREFIX + secrets.token_urlsafe(SECRET_BYTES)
        row = self._door.all(
            MAKE,
            id=uuid4(),
            name=name,
            secret_hash=_hash(secret),
            scope=str(given),
            owner_id=owner,
            subject=subject,
            lasts=lasts,
        )[0]
        return _token(row), secret

    def find(self, secret: str) -> Token | None:
        """The token of this secret, while it is good. That it was used is noted once a minute."""
        if not secret.startswith(PREFIX) or not secret.isascii():
            return None
        row = self._door.one(FIND, secret_hash=_hash(secret))
        if row is None:
            return None
        if row["unnoted"]:
            self._door.one(NOTE_USE, id=row["id"])
        return _token(row)

    def revoke(self, token_id: UUID | str) -> Token:
        """Take a token back: its next request is nobody's. Raises `InvalidInput` where there is none."""
        row = self._door.one(REVOKE, id=_identity(token_id))
        if row is None:
            raise InvalidInput("token", f"there is none with the id {shown(str(token_id))}")
        return _token(row)

    def all(self) -> Sequence[Token]:
        """All that were made, the oldest first."""
        return [_token(row) for row in self._door.all(LIST)]


def _hash(secret: str) -> str:
    """The secret is long and random: nothing slow is needed to keep it from being guessed."""
    return sha256(secret.encode()).hexdigest()


def _scope(scope: object) -> Scope:
    if isinstance(scope, str) and scope in {one.value for one in Scope}:
        return Scope(scope)
    raise InvalidInput("scope", none_of(scope, [one.value for one in Scope]))


def _identity(token_id: UUID | str) -> UUID:
    try:
        return token_id if isinstance(token_id, UUID) else UUID(token_id)
    except ValueError:
        raise InvalidInput("token", f"{shown(token_id)} is no id of a token") from None


def _token(row: Row) -> Token:
    return Token(
        id=row["id"],
        name=row["name"],
        scope=Scope(row["scope"]),
        subject=row["subject"],
        owner=row["owner_id"],
        created_at=row["created_at"],
        expires_at=row["expires_at"],
        revoked_at=row["revoked_at"],
        used_at=row["used_at"],
    )

"""Who is logged in, as an `Identity`, by Django's users, permissions and groups. Allows nothing: the edges do."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from django.contrib.auth import get_user_model

from celery_supervise.policy import Identity, Scope
from celery_supervise.recipients import person

SCOPES: Sequence[tuple[str, Scope]] = (
    ("supervise.operate_job", Scope.OPERATOR),
    ("supervise.answer_question", Scope.ANSWERER),
    ("supervise.view_job", Scope.READONLY),
)
"""What a permission allows, the widest first."""


class LoginAuthenticator:
    """The user of Django's login; nobody who has none of our permissions. Fits any request that has a `user`."""

    def __call__(self, request: Any) -> Identity | None:
        """The sender of `request`."""
        user = getattr(request, "user", None)
        if user is None or not user.is_authenticated or not user.is_active:
            return None
        scope = next((scope for permission, scope in SCOPES if user.has_perm(permission)), None)
        return None if scope is None else Identity(user.get_username(), scope, self.owner(user))

    def owner(self, user: Any) -> str | None:  # noqa: ARG002  # for those who override it
        """Whose jobs there are for this user. None, which is everybody's, where a shop does not say."""
        return None


authenticate = LoginAuthenticator()
"""For `supervise_authenticate` and the like, where no owner is to be told apart."""


def groups_of(actor: str) -> Iterable[str]:
    """For `supervise_groups`: the Django groups of an active user, so that `to="group:finance"` finds its members."""
    users = get_user_model()
    named = {users.USERNAME_FIELD: person(actor), "is_active": True}
    found: Iterable[str] = users._default_manager.filter(**named).values_list("groups__name", flat=True)  # noqa: SLF001  # documented by Django
    return [name for name in found if name]

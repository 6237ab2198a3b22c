"""Who sends a request: asked once, before any route is looked for. Nothing but a written list goes without.

It is part of the application itself, so that wherever this is mounted, it stays.
"""

from __future__ import annotations

from collections.abc import Collection
from ipaddress import ip_address, ip_network
from typing import Any, Final

from starlette.concurrency import run_in_threadpool
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Receive, Send
from starlette.types import Scope as Asgi

from celery_supervise.errors import ConfigError, InvalidInput, SuperviseError
from celery_supervise.policy import Authenticator, Identity, Scope
from celery_supervise.tokens import Tokens

from .problems import Problem, forbidden, problem_of, unauthenticated

OPEN: Final = frozenset({"/health"})
"""What needs no login: it says whether we work, and nothing of anybody's."""
BEARER: Final = "bearer "


class Login:
    """ASGI middleware: lets pass who is known, as `request.state.identity`."""

    def __init__(self, app: ASGIApp, *, authenticate: Authenticator, open_: Collection[str] = OPEN) -> None:
        self._app = app
        self._authenticate = authenticate
        self._open = open_

    async def __call__(self, scope: Asgi, receive: Receive, send: Send) -> None:
        """Ask, then go on or refuse."""
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        if scope["type"] == "http" and _path(scope) in self._open:
            await self._app(scope, receive, send)
            return
        refused = await self._known(scope)
        if refused is None:
            await self._app(scope, receive, send)
        else:
            await refused.response()(scope, receive, send)

    async def _known(self, scope: Asgi) -> Problem | None:
        try:
            # whatever the shop's function gives
            identity: object = await run_in_threadpool(self._authenticate, HTTPConnection(scope))
        except InvalidInput:  # a name that could not stand in the log is nobody's
            return unauthenticated()
        except SuperviseError as error:
            return problem_of(error)
        if identity is None:
            return unauthenticated()
        if not isinstance(identity, Identity):
            return problem_of(ConfigError("supervise_authenticate", "must return an Identity or None"))
        scope.setdefault("state", {})["identity"] = identity
        return None


def _path(scope: Asgi) -> str:
    """Below where the application is mounted."""
    path, root = str(scope["path"]), str(scope.get("root_path", ""))
    return path.removeprefix(root) if root and path.startswith(root + "/") else path


def need(identity: Identity, scope: Scope) -> None:
    """Refuse who may see, but not do this. Raises `Problem`."""
    if not identity.scope.covers(scope):
        raise forbidden(f"this needs the scope {scope}; yours is {identity.scope}")


# --- authenticators that come with the library -----------------------------------------------------------


class TokenAuthenticator:
    """`Authorization: Bearer …`, with a token that `celery -A proj supervise token make` has made."""

    def __init__(self, tokens: Tokens) -> None:
        self._tokens = tokens

    def __call__(self, request: Any) -> Identity | None:
        """The token's identity, while it is good."""
        given = request.headers.get("authorization", "")
        if not given.lower().startswith(BEARER):
            return None
        token = self._tokens.find(given[len(BEARER) :].strip())
        return None if token is None else token.identity


class TrustedProxy:
    """A header that a proxy sets, from the proxy's addresses only: it must take away what a client sends under it.

    `sources`: CIDRs, or ``unix`` for a socket in the file system. `owner_header`: whose jobs there are for the
    sender; without it everybody's.
    """

    def __init__(
        self,
        header: str,
        *,
        sources: Collection[str],
        scope: Scope = Scope.OWNER,
        owner_header: str | None = None,
    ) -> None:
        if not sources:
            raise ConfigError("sources", "name the proxy's addresses: else anybody is whoever they say")
        self._header = header
        self._owner_header = owner_header
        self._scope = scope
        self._socket = "unix" in sources
        self._networks = [ip_network(one) for one in sources if one != "unix"]

    def __call__(self, request: Any) -> Identity | None:
        """Whom the proxy says it is."""
        subject = request.headers.getlist(self._header)
        owner = request.headers.getlist(self._owner_header) if self._owner_header else [None]
        if not self._comes_from(request.client) or len(subject) != 1 or len(owner) != 1 or not subject[0]:
            return None
        return Identity(subject[0], self._scope, owner[0])

    def _comes_from(self, client: Any) -> bool:
        if client is None or not client.host:
            return self._socket
        try:
            address = ip_address(client.host)
        except ValueError:
            return False
        return any(address in network for network in self._networks)


def first_of(*authenticators: Authenticator) -> Authenticator:
    """The identity that the first of these gives."""

    def authenticate(request: Any) -> Identity | None:
        return next((found for one in authenticators if (found := one(request)) is not None), None)

    return authenticate


def everybody(identity: Identity) -> Authenticator:
    """Whoever comes is this one: for a server that nobody else can reach."""
    return lambda _request: identity


def on_this_machine_only(app: ASGIApp) -> ASGIApp:
    """Refuse what is sent under another name than this machine's own: a page elsewhere could have it point here."""
    return TrustedHostMiddleware(app, allowed_hosts=["localhost", "127.0.0.1", "[::1]"], www_redirect=False)

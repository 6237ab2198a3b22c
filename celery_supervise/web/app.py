"""The ASGI application: routes, who may come in, what a refusal looks like. No rule of any job."""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import Any, Final

from celery import Celery
from fastapi import Depends, FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from prometheus_client import CollectorRegistry
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from celery_supervise.errors import ConfigError, SuperviseError
from celery_supervise.install import Supervisor
from celery_supervise.metrics import SupervisorCollector
from celery_supervise.policy import Authenticator
from celery_supervise.runtime import settings_of
from celery_supervise.tokens import Tokens
from celery_supervise.version import VERSION

from . import health, jobs, many, moves, questions, submitting
from .login import Login, TokenAuthenticator
from .problems import MEDIA_TYPE, Problem, not_found, problem_of
from .reading import SLACK, no_nul, unacceptable
from .shapes import ProblemShape
from .submitting import exposed

logger = logging.getLogger(__name__)

HEADERS: Final = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}
REFUSALS: Final[dict[int | str, dict[str, Any]]] = {
    status: {"content": {MEDIA_TYPE: {"schema": ProblemShape.model_json_schema()}}, "description": text}
    for status, text in (
        (400, "It cannot be read."),
        (401, "Nobody is known to have sent it."),
        (403, "You may see this, and not do it."),
        (404, "There is no such thing, or it is not yours."),
        (409, "Not in this state, or not any more: see `code`."),
        (413, "Too large."),
        (415, "Bodies are application/json."),
        (422, "It cannot be used: see `errors`."),
        (428, "Say what you have seen."),
        (429, "Too many open jobs."),
        (500, "A fault of ours."),
        (503, "The database is away."),
    )
}


def create_app(app: Celery, *, authenticate: Authenticator) -> FastAPI:
    """The API of a Celery app's jobs, to be served by itself or mounted under a path.

    `authenticate`: who sends a request; called in a thread, for each. The app's tasks are loaded, to know which may be
    submitted. Raises `ConfigError`.
    """
    app.loader.import_default_modules()
    app.finalize()
    settings = settings_of(app)
    found = exposed(app)
    if found and settings.submit != "row":
        raise ConfigError("supervise_submit", 'must be "row" where tasks are exposed: a 202 promises a row')
    web = FastAPI(
        title="celery-supervise",
        version=VERSION,
        description="Jobs, their questions, and what can be asked of them.",
        redirect_slashes=False,
        docs_url=None,
        redoc_url=None,
        responses=REFUSALS,
        dependencies=[Depends(no_nul)],
        # outermost first: who comes in is asked before a route is looked for
        middleware=[Middleware(Polite), Middleware(Login, authenticate=authenticate), Middleware(Heads)],
    )
    web.state.service = Supervisor.of(app)
    web.state.exposed = found
    web.state.max_body_bytes = settings.max_value_bytes + SLACK
    web.state.sweep_period = timedelta(seconds=settings.sweep_seconds)
    web.state.registry = CollectorRegistry()
    web.state.registry.register(SupervisorCollector(web.state.service))
    for part in (submitting, jobs, moves, questions, many, health):
        web.include_router(part.router)
    _refuse_in_our_way(web)
    return web


def tokens_of(app: Celery) -> TokenAuthenticator:
    """The authenticator of the tokens that `celery -A proj supervise token` makes. Raises `ConfigError`."""
    return TokenAuthenticator(Tokens(Supervisor.of(app).door))


def _refuse_in_our_way(web: FastAPI) -> None:
    web.exception_handler(Problem)(_problem)
    web.exception_handler(SuperviseError)(_refused)
    web.exception_handler(RequestValidationError)(_unusable)
    web.exception_handler(HTTPException)(_no_route)
    web.exception_handler(Exception)(_fault)


async def _problem(_: Request, error: Problem) -> Response:
    return error.response()


async def _refused(_: Request, error: SuperviseError) -> Response:
    return problem_of(error).response()


async def _unusable(_: Request, error: RequestValidationError) -> Response:
    """What FastAPI itself reads: query, path and headers; their kind is no part of a field's name."""
    return unacceptable(error.errors(), skip=1).response()


async def _no_route(_: Request, error: HTTPException) -> Response:
    if error.status_code == 405:  # noqa: PLR2004  # HTTP's own
        return Problem(405, "method_not_allowed", headers=dict(error.headers or {})).response()
    return not_found().response()


async def _fault(_: Request, _error: Exception) -> Response:
    """Told to the log by the server; to nobody else."""
    return Problem(500, "internal").response()


class Polite:
    """ASGI middleware: headers that every response has."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Add them to what has none of the kind."""

        async def answer(message: Message) -> None:
            if message["type"] == "http.response.start":
                there = {name.lower() for name, _ in message["headers"]}
                more = [(name.lower().encode(), value.encode()) for name, value in HEADERS.items()]
                message["headers"] = [*message["headers"], *(one for one in more if one[0] not in there)]
            await send(message)

        await self._app(scope, receive, answer)


class Heads:
    """ASGI middleware: HEAD is GET without the body, on every route."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Ask as GET."""
        if scope["type"] != "http" or scope["method"] != "HEAD":
            await self._app(scope, receive, send)
            return

        async def answer(message: Message) -> None:
            if message["type"] == "http.response.body":
                message = {**message, "body": b""}
            await send(message)

        await self._app({**scope, "method": "GET"}, receive, answer)

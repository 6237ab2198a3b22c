"""Fixtures of the tests of the API: a Celery app, its API on a socket, people with tokens."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest
import uvicorn
from celery import Celery

from celery_supervise import Options, SupervisedTask
from celery_supervise.tokens import Tokens
from celery_supervise.web import TokenAuthenticator, create_app
from tests.celery.conftest import open_site
from tests.celery.site import Site
from tests.tools import wait_for

__all__ = ["open_site"]
"""A fixture of the Celery tests."""


class Server(uvicorn.Server):
    """A server in a thread of the tests: signals are pytest's."""

    def install_signal_handlers(self) -> None:
        """None."""


@dataclass
class Api:
    """The API of a site, as people use it."""

    site: Site
    url: str
    tokens: Tokens
    clients: list[httpx.Client] = field(default_factory=list)

    def person(self, subject: str, *, scope: str = "owner", owner: str | None = None) -> httpx.Client:
        """Somebody with a token."""
        named = owner or (subject if scope == "owner" else None)
        _, secret = self.tokens.make(f"of {subject}", subject=subject, scope=scope, owner=named)
        return self.client({"Authorization": f"Bearer {secret}"})

    def client(self, headers: dict[str, str] | None = None) -> httpx.Client:
        """Somebody."""
        made = httpx.Client(base_url=self.url, headers=headers or {}, timeout=30)
        self.clients.append(made)
        return made

    def close(self) -> None:
        """Everybody leaves."""
        for client in self.clients:
            client.close()


def define(app: Celery) -> None:
    """The tasks that can be submitted, and one that cannot."""

    @app.task(shared=False, base=SupervisedTask, bind=True, name="shop.pay", supervise=Options(expose=True))
    def pay(self: SupervisedTask, vendor: int, amount: str = "1.00") -> str:
        approved = self.ask("approve", f"Pay {amount} to {vendor}?", choices=["yes", "no"])
        return f"{vendor}: {approved}"

    @app.task(shared=False, base=SupervisedTask, bind=True, name="shop.count", supervise=Options(expose=True))
    def count(self: SupervisedTask, most: int = 1) -> int:
        for number in range(most):
            self.step(f"step {number}", int, number)
        return most

    @app.task(shared=False, base=SupervisedTask, name="shop.hidden")
    def hidden() -> None:
        """Not meant for it."""


@pytest.fixture
def open_api(open_site: Callable[..., Site]) -> Iterator[Callable[..., Api]]:
    """Opens the API of a site on a socket."""
    with ExitStack() as stack:

        def make(**settings: Any) -> Api:
            site = open_site(**settings)
            define(site.app)
            tokens = Tokens(site.runtime.door)
            web = create_app(site.app, authenticate=TokenAuthenticator(tokens))
            url = stack.enter_context(served(web))
            api = Api(site, url, tokens)
            stack.callback(api.close)
            return api

        yield make


@pytest.fixture
def api(open_api: Callable[..., Api]) -> Api:
    """The API of a site, on a socket, without workers."""
    return open_api()


class served:  # noqa: N801  # used as a function
    """Serve an application on a free port for the block; gives its address."""

    def __init__(self, web: Any, **options: Any) -> None:
        self._server = Server(uvicorn.Config(web, host="127.0.0.1", port=0, log_level="warning", **options))
        self._thread = threading.Thread(target=self._server.run, daemon=True)

    def __enter__(self) -> str:
        self._thread.start()
        wait_for(lambda: self._server.started, what="the server")
        port = self._server.servers[0].sockets[0].getsockname()[1]
        return f"http://127.0.0.1:{port}"

    def __exit__(self, *_: object) -> None:
        self._server.should_exit = True
        self._thread.join(10)
        assert not self._thread.is_alive(), f"the server still runs at {time.monotonic()}"

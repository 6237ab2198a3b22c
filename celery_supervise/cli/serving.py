"""The verb `web`: serves the HTTP API. Loads FastAPI and uvicorn, which are an extra, only when it is used."""

from __future__ import annotations

from ipaddress import ip_address
from typing import Any

import click

from celery_supervise.errors import ConfigError
from celery_supervise.policy import Identity, Scope
from celery_supervise.runtime import function_at

from .verb import NAME, runtime, verb
from .who import login

EXTRA = "needs FastAPI and uvicorn: pip install 'celery-supervise[web]'"


@verb("web", "web --host 0.0.0.0 --port 8080", "web --uds /run/supervise.sock", "web --open")
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option("--port", type=click.IntRange(0, 65_535), default=8008, show_default=True, help="The port; 0 takes any.")
@click.option("--uds", type=click.Path(), help="Listen on a socket in the file system instead.")
@click.option("--root-path", default="", help="The path under which a proxy shows it.")
@click.option("--open", "open_", is_flag=True, help="No login: whoever is on this machine is you.")
@click.option("--as", "name", type=NAME, metavar="USER", help="With --open: who you are; else your login name.")
@click.pass_context
def web(  # its options
    ctx: click.Context, *, host: str, port: int, uds: str | None, root_path: str, open_: bool, name: str | None
) -> None:
    """Serve the HTTP API.

    Who comes in says supervise_authenticate; if that is not set, tokens (`supervise token`).
    """
    found = runtime(ctx)
    if open_ and (uds is not None or not is_loopback(host) or found.settings.authenticate):
        raise click.UsageError("--open is for a server without supervise_authenticate, on a loopback address only.")
    app = application(found, (name or login()) if open_ else None)
    _serve(app, host=host, port=port, uds=uds, root_path=root_path)


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach it.

    >>> is_loopback("127.0.0.1"), is_loopback("localhost"), is_loopback("0.0.0.0"), is_loopback("example.com")
    (True, True, False, False)
    """
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def application(found: Any, guest: str | None) -> Any:
    """The API of the app of a runtime; `guest`: whoever comes is this one. Raises `ConfigError`."""
    try:
        from celery_supervise import web as api  # noqa: PLC0415  # an extra
    except ImportError as error:
        raise ConfigError("supervise web", f"{EXTRA} ({error})") from error
    if guest is not None:
        known = api.everybody(Identity(guest, Scope.OPERATOR))
        return api.on_this_machine_only(api.create_app(found.app, authenticate=known))
    path = found.settings.authenticate
    known = function_at("supervise_authenticate", path) if path else api.tokens_of(found.app)
    return api.create_app(found.app, authenticate=known)


def _serve(app: Any, **options: Any) -> None:
    import uvicorn  # noqa: PLC0415  # an extra

    uvicorn.run(app, log_level="info", server_header=False, **options)

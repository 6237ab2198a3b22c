"""The verbs `token`, `tokens`, `revoke`: who may use the HTTP API. No rule lives here."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

import click

from celery_supervise.moments import near
from celery_supervise.policy import Scope
from celery_supervise.tokens import Token, Tokens
from celery_supervise.wording import count

from .render import cell, escape, table, to_json
from .times import SPAN
from .verb import NAME, clock, json_option, runtime, say, verb

SCOPES: Final = [str(scope) for scope in Scope]


@verb(
    "token ci --scope owner --owner acme",
    "token inbox-of-ann --subject ann --scope answerer --lasts 30d",
    "token prometheus --scope readonly",
)
@click.argument("name", type=NAME)
@click.option("--scope", type=click.Choice(SCOPES), required=True, help="What it may do, the least first.")
@click.option("--owner", type=NAME, help="Whose jobs there are for it; everybody's if not given.")
@click.option("--subject", type=NAME, help="As whom it acts, for the log; its name if not given.")
@click.option("--lasts", type=SPAN, metavar="SPAN", help="After this it is good no more; for ever if not given.")
@json_option
@click.pass_context
def token(
    ctx: click.Context,
    *,
    name: str,
    scope: str,
    owner: str | None,
    subject: str | None,
    lasts: timedelta | None,
    as_json: bool,
) -> None:
    """Make a token for the HTTP API.

    Its secret is shown now, once: only a hash of it is kept.
    """
    made, secret = _tokens(ctx).make(name, subject=subject or name, scope=scope, owner=owner, lasts=lasts)
    if as_json:
        say(ctx, to_json({**_view(made), "secret": secret}))
        return
    say(ctx, f"{secret}\n")
    say(ctx, f"Use it as: Authorization: Bearer {secret[:8]}…; take it back by: supervise revoke {made.id}")


@verb("tokens", "tokens --json")
@json_option
@click.pass_context
def tokens(ctx: click.Context, *, as_json: bool) -> None:
    """List the tokens that were made, without their secrets."""
    found = _tokens(ctx).all()
    if as_json:
        say(ctx, to_json({"tokens": [_view(one) for one in found]}))
        return
    now = clock(runtime(ctx).door)
    head = ("id", "name", "scope", "as", "owner", "last used", "good until")
    rows = [
        (
            str(one.id),
            cell(one.name),
            str(one.scope),
            cell(one.subject),
            cell(one.owner or "everybody's jobs"),
            near(one.used_at, now) if one.used_at else "never",
            _until(one, now),
        )
        for one in found
    ]
    say(ctx, f"{table(head, rows)}\n\n{count(len(rows), 'token')}" if rows else "no tokens")


@verb("revoke 0d9b0f5e-7a55-4b43-a2c5-4b1f2f8d7a10")
@click.argument("token_id", metavar="TOKEN", type=NAME)
@json_option
@click.pass_context
def revoke(ctx: click.Context, *, token_id: str, as_json: bool) -> None:
    """Take a token back: its next request is refused."""
    taken = _tokens(ctx).revoke(token_id)
    say(ctx, to_json(_view(taken)) if as_json else f"revoked: {escape(taken.name)}")


def _tokens(ctx: click.Context) -> Tokens:
    return Tokens(runtime(ctx).door)


def _view(one: Token) -> dict[str, object]:
    return {**vars(one), "scope": str(one.scope)}


def _until(one: Token, now: datetime) -> str:
    if one.revoked_at is not None:
        return f"revoked {near(one.revoked_at, now)}"
    return near(one.expires_at, now) if one.expires_at else "for ever"

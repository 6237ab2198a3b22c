"""The verb `migrate`: makes and updates the tables. Alone in its module: Alembic takes 150 ms to import."""

from __future__ import annotations

import click

from celery_supervise.engine import normalise_url
from celery_supervise.migrate import migrate as migrate_schema
from celery_supervise.migrate import sql as migration_sql
from celery_supervise.revision import HEAD
from celery_supervise.runtime import runtime_of, settings_of

from .render import escape
from .verb import NAME, say, verb


@verb(
    "migrate",
    "migrate --url postgresql://owner@db/shop --runtime-role shop_app",
    "migrate --sql --runtime-role shop_app > supervise.sql",
)
@click.option(
    "--url",
    type=NAME,
    help="The database, as the role that is to own the tables. Default: the app's setting.",
)
@click.option("--schema", type=NAME, help="Default: the setting supervise_schema.")
@click.option(
    "--runtime-role",
    type=NAME,
    metavar="ROLE",
    help="The role that the app connects as: it gets what it needs.",
)
@click.option("--sql", "as_sql", is_flag=True, help="Print the statements, for psql, and connect to nothing.")
@click.pass_context
def migrate(ctx: click.Context, *, url: str | None, schema: str | None, runtime_role: str | None, as_sql: bool) -> None:
    """Make the tables, or bring them up to date.

    All of it, or nothing. Safe to run on every deploy, and from several places at once. Workers of the version
    before go on working.
    """
    app = ctx.obj.app
    named = schema or settings_of(app).schema
    if as_sql:
        say(ctx, migration_sql(url or "postgresql://", schema=named, runtime_role=runtime_role))
        return
    target = normalise_url(url) if url else runtime_of(app).engines().url
    migrate_schema(target, schema=named, runtime_role=runtime_role)
    grants = f", and role {escape(runtime_role)} may use it" if runtime_role else ""
    say(ctx, f"Schema {named} in database {escape(target.database or '')} is at revision {HEAD}{grants}.")

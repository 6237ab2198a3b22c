"""The app for `INSTALLED_APPS`. After Django's own migrations it makes our tables, where they are in its database."""

from __future__ import annotations

from contextlib import closing
from typing import Any

from django.apps import AppConfig
from django.db.models.signals import post_migrate

from celery_supervise.engine import create_engine
from celery_supervise.errors import NotMigrated
from celery_supervise.migrate import check, migrate

from .app import settings
from .databases import url_of

LABEL = "supervise"


class SuperviseConfig(AppConfig):
    """`celery_supervise.contrib.django`."""

    name = "celery_supervise.contrib.django"
    label = LABEL
    verbose_name = "Supervised jobs"

    def ready(self) -> None:
        """Make our tables where Django has made its own: in a project's database, and in its tests'."""
        post_migrate.connect(make_tables, sender=self)


def make_tables(*, using: str, verbosity: int = 1, **_: Any) -> None:
    """Make or update the tables if they belong to the database of this alias. Raises as `migrate` does.

    Where they fit already nothing is done, so that a role which may not make tables can still run `migrate`.
    """
    said = settings()
    if said.database != using or _fit(using, said.schema):
        return
    migrate(url_of(using), schema=said.schema)
    if verbosity:
        print(f"  Made the tables of celery-supervise in schema {said.schema}.")  # noqa: T201  # as Django tells its own


def _fit(alias: str, schema: str) -> bool:
    engine = create_engine(url_of(alias))
    try:
        with closing(engine.connect()) as connection:
            check(connection, schema)
    except NotMigrated:
        return False
    finally:
        engine.dispose()
    return True

"""Django's databases by their aliases, as the rest of the library takes them. Imports no Django.

`contrib.django` is the only place that does. It is loaded by name, when an alias is first given: a shop without Django
never needs it.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Final

from sqlalchemy.engine import URL

from .errors import ConfigError, InvalidInput
from .store.joining import Joined

DATABASES: Final = "celery_supervise.contrib.django.databases"
COMMITTING: Final = "celery_supervise.contrib.django.committing"
USED: Final = "django.db"


@dataclass(frozen=True)
class Aliases:
    """What can be had of an alias where our tables are in `schema`. Each raises `InvalidInput` where there is none."""

    schema: str

    def joined(self, alias: str) -> Joined | None:
        """The transaction that this thread has open there; None where it has none open."""
        found: Joined | None = _side(DATABASES).joined(alias, self.schema)
        return found

    def block(self, alias: str) -> AbstractContextManager[Joined]:
        """A transaction of its own there: commits at its end, rolls back on any exception."""
        opened: AbstractContextManager[Joined] = _side(DATABASES).block(alias, self.schema)
        return opened


def nested(alias: str) -> AbstractContextManager[Any]:
    """A transaction there, or a part of the one that is open: of a body that is no job's, which joins nothing."""
    opened: AbstractContextManager[Any] = _side(DATABASES).nested(alias)
    return opened


def url_of(alias: str) -> URL:
    """Where the database of an alias is, as Django says just now. Raises `ConfigError`."""
    try:
        found: URL = _side(DATABASES).url_of(alias)
    except InvalidInput as error:
        raise ConfigError("supervise_database", error.problem) from None
    return found


def name_of(alias: str) -> str:
    """The name of an alias's database just now. Cheap: asked before each statement."""
    return str(_side(DATABASES).name_of(alias))


def in_tests() -> bool:
    """Whether Django's test environment is set up, whose databases are dropped when nobody is connected to them."""
    return bool(_side(DATABASES).in_tests())


def in_use() -> bool:
    """Whether Django is set up in this process: loaded, as by whoever looks at our module, it need not be."""
    return USED in sys.modules and bool(_side(DATABASES).is_set_up())


def in_transaction() -> bool:
    """Whether this thread has a transaction of Django's open. Where nobody has loaded Django, there is none."""
    return in_use() and bool(_side(DATABASES).in_transaction())


def on_commit(
    task: Any, args: Any, kwargs: Any, *, using: str | None, database: str | None, options: Mapping[str, Any]
) -> Any:
    """A call that counts with a commit of Django's; its result: see there. Raises `InvalidInput` without Django."""
    if not in_use():
        raise InvalidInput("using", "names a Django database, and Django is not set up in this process")
    return _side(COMMITTING).on_commit(task, args, kwargs, using=using, database=database, options=options)


def _side(module: str) -> Any:
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        raise InvalidInput("using", f"names a database of Django's, and {error.name} is not installed") from error

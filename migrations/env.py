"""How Alembic runs the migrations: for `celery supervise migrate`, and plain. Makes no tables itself.

Plain: `alembic -x schema=NAME upgrade head`, with the URL in `sqlalchemy.url` or SUPERVISE_DATABASE_URL.
"""

import os

from alembic import context
from sqlalchemy.engine import Connection

from celery_supervise.errors import ConfigError
from celery_supervise.migrate import LOCK_TIMEOUT, checked_name, locked, preparation
from celery_supervise.privileges import grants, quoted
from celery_supervise.schema import DEFAULT_SCHEMA, VERSION_TABLE, metadata

given = context.config.attributes
extra = context.get_x_argument(as_dictionary=True)
schema = checked_name(str(given.get("schema") or extra.get("schema") or DEFAULT_SCHEMA))


def configure(**options: object) -> None:
    """Everything lies in the schema, the version table too: the shop has its own in the same database."""
    context.configure(
        target_metadata=metadata(schema),
        version_table=VERSION_TABLE,
        version_table_schema=schema,
        include_schemas=True,
        include_name=lambda name, kind, _: kind != "schema" or name == schema,
        **options,  # type: ignore[arg-type]  # what Alembic takes is spelled out in its stub alone
    )


def print_sql() -> None:
    """For `--sql`: the script that does the same by psql."""
    configure(dialect_name="postgresql", literal_binds=True, dialect_opts={"paramstyle": "named"})
    role = given.get("runtime_role")
    with context.begin_transaction():
        for statement in preparation(schema, given.get("lock_timeout", LOCK_TIMEOUT)):
            context.execute(statement)
        context.execute(f"CREATE SCHEMA IF NOT EXISTS {quoted(schema)}")
        context.run_migrations()
        for statement in grants(schema, role) if role else ():
            context.execute(statement)


def run(connection: Connection) -> None:
    """Run them in the transaction of `locked`."""
    configure(connection=connection)
    with context.begin_transaction():
        context.run_migrations()


def url() -> str:
    """Raises ConfigError where none is given."""
    found = context.config.get_main_option("sqlalchemy.url") or os.environ.get("SUPERVISE_DATABASE_URL")
    if not found:
        raise ConfigError("supervise_database_url", "set sqlalchemy.url or SUPERVISE_DATABASE_URL")
    return found


if context.is_offline_mode():
    print_sql()
elif "connection" in given:
    run(given["connection"])
else:
    with locked(url(), schema=schema) as own:
        run(own)

"""The role that applications run as may do what the library does, and nothing that takes a job away."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from sqlalchemy.engine import Connection
from sqlalchemy.exc import DBAPIError

from celery_supervise.engine import create_engine, sqlstate
from celery_supervise.migrate import migrate
from tests.postgres.rows import TABLES, insert, row, settled
from tests.servers import OWNER, RUNTIME, Database

FORBIDDEN = "42501"
VERBS = ("SELECT", "INSERT", "UPDATE", "DELETE", "TRUNCATE", "REFERENCES", "TRIGGER")

# what the role may, by the verbs' first letters; written out, so that a slip in the grants shows
EXPECTED = {
    "jobs": "SIU",
    "log": "SI",
    "payloads": "SIU",
    "attempts": "SIU",
    "checkpoints": "SIU",
    "questions": "SIU",
    "tombstones": "S",
    "votes": "SIUD",
    "cleanups": "SIUD",
    "outbox": "SIUD",
    "queues": "SIU",
    "sweeps": "SIU",
    "holds": "SIUD",
    "operations": "SIUD",
    "api_tokens": "SIUD",
    "answer_links": "SIUD",
    "meta": "SIU",
    "locked_decisions": "S",
    "version": "S",
}
RIGHTS = """
    SELECT c.relname, v.verb, has_table_privilege(%s, c.oid, v.verb) FROM pg_class AS c, unnest(%s) AS v(verb)
    WHERE c.relnamespace = 'supervise'::regnamespace AND c.relkind IN ('r', 'v')"""


@pytest.fixture
def runtime(database: Database) -> Iterator[Connection]:
    """The application's connection; each statement commits."""
    engine = create_engine(database.url)
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        yield connection
    engine.dispose()


def rights(connection: Connection, role: str) -> dict[str, str]:
    """What the role may do on each table of the schema."""
    found = connection.exec_driver_sql(RIGHTS, (role, list(VERBS))).all()
    tables = {table for table, _, _ in found}
    held = {(table, verb) for table, verb, may in found if may}
    return {table: "".join(verb[0] for verb in VERBS if (table, verb) in held) for table in tables}


def test_the_rights_are_these(runtime: Connection) -> None:
    """Exactly these, on every table there is: one that a migration adds and nobody grants fails here."""
    assert rights(runtime, RUNTIME) == EXPECTED


def test_nobody_else_has_any(database: Database) -> None:
    """Neither PUBLIC nor any other role has a right on a table or a function."""
    engine = create_engine(database.owner_url)
    with engine.connect() as owner:
        granted = owner.exec_driver_sql(
            "SELECT DISTINCT coalesce(r.rolname, 'PUBLIC') FROM ("
            " SELECT relacl AS acl FROM pg_class WHERE relnamespace = 'supervise'::regnamespace"
            " UNION ALL SELECT coalesce(proacl, acldefault('f', proowner)) FROM pg_proc"
            "  WHERE pronamespace = 'supervise'::regnamespace"
            " UNION ALL SELECT nspacl FROM pg_namespace WHERE nspname = 'supervise'"
            ") AS a, aclexplode(a.acl) AS e LEFT JOIN pg_roles AS r ON r.oid = e.grantee"
        ).scalars()
        assert set(granted) == {OWNER, RUNTIME}
    engine.dispose()


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM supervise.jobs",
        "DELETE FROM supervise.log",
        "UPDATE supervise.log SET actor = 'nobody'",
        "DELETE FROM supervise.attempts",
        "DELETE FROM supervise.checkpoints",
        "DELETE FROM supervise.questions",
        "DELETE FROM supervise.payloads",
        "INSERT INTO supervise.tombstones VALUES ('j', 'n', 't', 'failed', 1, now(), now())",
        "UPDATE supervise.version SET version_num = '9999'",
        "CREATE TABLE supervise.mine (id int)",
        "ALTER TABLE supervise.log DISABLE TRIGGER ALL",
        "ALTER TABLE supervise.jobs ADD COLUMN mine text",
        "DROP TABLE supervise.outbox",
        "DROP TRIGGER log_is_append_only ON supervise.log",
        "DROP FUNCTION supervise.prune_jobs(text[])",
        "CREATE OR REPLACE FUNCTION supervise.prune_jobs(text[]) RETURNS text[] LANGUAGE sql AS 'SELECT $1'",
        "SET session_replication_role = replica",
        *(f"TRUNCATE supervise.{table}" for table in TABLES),
    ],
)
def test_what_it_may_not(runtime: Connection, statement: str) -> None:
    """Each is refused for want of a right, before any trigger is asked."""
    with pytest.raises(DBAPIError) as refusal:
        runtime.exec_driver_sql(statement)
    assert sqlstate(refusal.value) == FORBIDDEN


def test_what_it_does(runtime: Connection) -> None:
    """It reads and writes rows, deletes those of queues and people, reads the view, and prunes and erases."""
    insert(runtime, "jobs", row("jobs", id="j", **settled()))
    insert(runtime, "log", row("log", job_id="j"))
    runtime.exec_driver_sql("UPDATE supervise.jobs SET log_seq = 1")
    for table, may in EXPECTED.items():
        assert runtime.exec_driver_sql(f"SELECT count(*) FROM supervise.{table}").scalar() is not None
        if "I" in may and table not in {"jobs", "log"}:
            insert(runtime, table, row(table))
        if "D" in may:
            assert runtime.exec_driver_sql(f"DELETE FROM supervise.{table}").rowcount == 1
    assert runtime.exec_driver_sql("SELECT supervise.erase_job('j', 'ann')").scalar() is True
    assert runtime.exec_driver_sql("SELECT supervise.prune_jobs('{j}')").scalar() == ["j"]


def test_granting_again_takes_back_what_was_too_much(database: Database) -> None:
    """`migrate --runtime-role` sets the rights to what they are to be, whatever they were."""
    engine = create_engine(database.owner_url)
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as owner:
        owner.exec_driver_sql(f"GRANT ALL ON ALL TABLES IN SCHEMA supervise TO {RUNTIME}")
        owner.exec_driver_sql(f"GRANT CREATE ON SCHEMA supervise TO {RUNTIME}")
        owner.exec_driver_sql("CREATE TABLE supervise.the_shops_own (id int)")
        owner.exec_driver_sql(f"GRANT SELECT ON supervise.the_shops_own TO {RUNTIME}")
        migrate(database.owner_url, runtime_role=RUNTIME)
        assert rights(owner, RUNTIME) == {**EXPECTED, "the_shops_own": "S"}
        may_create = owner.exec_driver_sql("SELECT has_schema_privilege(%s, 'supervise', 'CREATE')", (RUNTIME,))
        assert may_create.scalar() is False
    engine.dispose()

"""What has ended stays as it ended, and the log stays: the triggers refuse even the owner and a superuser."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from uuid import uuid4

import pytest
from sqlalchemy.dialects import postgresql
from sqlalchemy.engine import Connection, Engine
from sqlalchemy.exc import IntegrityError

from celery_supervise.engine import create_engine
from celery_supervise.lifecycle import TERMINAL
from tests.postgres.rows import NOW, TABLES, ended, insert, parked, row, running, settled
from tests.servers import Database

TRIGGERS = """
    SELECT t.tgname, t.tgenabled FROM pg_trigger AS t JOIN pg_class AS c ON c.oid = t.tgrelid
    WHERE c.relnamespace = 'supervise'::regnamespace AND NOT t.tgisinternal"""
CODES = {
    "jobs_terminal_is_final": "23S01",
    "attempts_ended_is_final": "23S02",
    "jobs_go_by_prune": "23S03",
    "log_is_append_only": "23S04",
    "log_no_truncate": "23S05",
    "jobs_no_truncate": "23S05",
}
MAY_MOVE = {"log_seq", "settle_id", "settle_due_at", "settled_at", "settle_tries", "sweep_after", "erased_at"}

# another value of each type; NULL becomes a value, a value another one
DIALECT = postgresql.dialect()  # type: ignore[no-untyped-call]  # SQLAlchemy leaves it untyped
OTHER = {
    "TEXT": "coalesce({0}, '') || 'x'",
    "UUID": "gen_random_uuid()",
    "TIMESTAMP": "coalesce({0}, now()) + interval '1 ms'",
    "SMALLINT": "coalesce({0}, 0) + 1",
    "INTEGER": "coalesce({0}, 0) + 1",
    "BIGINT": "coalesce({0}, 0) + 1",
    "INTERVAL": "coalesce({0}, interval '0') + interval '1 s'",
    "BOOLEAN": "NOT {0}",
}


@pytest.fixture
def engine(database: Database) -> Iterator[Engine]:
    """Connections of the superuser, whom no privilege stops."""
    engine = create_engine(database.superuser_url)
    yield engine
    engine.dispose()


@pytest.fixture
def connection(engine: Engine) -> Iterator[Connection]:
    """Each statement commits."""
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        yield connection


@contextmanager
def refused_by(trigger: str) -> Iterator[None]:
    """The statement in the block is refused by this trigger, by its name and its own SQLSTATE."""
    with pytest.raises(IntegrityError) as refusal:
        yield
    driver: Any = refusal.value.orig
    assert (driver.diag.constraint_name, driver.pgcode) == (trigger, CODES[trigger])


def other(table: str, column: str) -> str:
    """SQL for another value than the column has."""
    kind = TABLES[table].columns[column].type.compile(DIALECT).split(" ")[0]
    return OTHER[kind].format(column)


def test_every_trigger_is_broken_here(connection: Connection) -> None:
    """No trigger is missing from these tests, and each is enabled ALWAYS."""
    assert {tuple(found) for found in connection.exec_driver_sql(TRIGGERS)} == {(name, "A") for name in CODES}


# --- ended jobs ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", sorted(TERMINAL))
def test_nothing_of_an_ended_job_changes(connection: Connection, state: str) -> None:
    """Every column but those of log, settling and erasure is final, in each terminal state."""
    insert(connection, "jobs", row("jobs", **ended(state)))
    for column in set(TABLES["jobs"].columns.keys()) - MAY_MOVE:
        with refused_by("jobs_terminal_is_final"):
            connection.exec_driver_sql(f"UPDATE supervise.jobs SET {column} = {other('jobs', column)}")


def test_an_ended_job_is_settled_logged_and_erased(connection: Connection) -> None:
    """What is still to be done for an ended job can be done."""
    insert(connection, "jobs", row("jobs", **ended(), progress_message="Vendor 7"))
    for column in MAY_MOVE - {"settle_id"}:
        connection.exec_driver_sql(f"UPDATE supervise.jobs SET {column} = {other('jobs', column)}")
    connection.exec_driver_sql("UPDATE supervise.jobs SET progress_message = NULL")


def test_a_message_is_not_taken_away_without_erasing(connection: Connection) -> None:
    """The author's progress message goes only with the values, and never becomes another one."""
    insert(connection, "jobs", row("jobs", **ended(), progress_message="Vendor 7"))
    with refused_by("jobs_terminal_is_final"):
        connection.exec_driver_sql("UPDATE supervise.jobs SET progress_message = NULL")
    connection.exec_driver_sql("UPDATE supervise.jobs SET erased_at = now()")
    with refused_by("jobs_terminal_is_final"):
        connection.exec_driver_sql("UPDATE supervise.jobs SET progress_message = 'Vendor 8'")


def test_a_job_does_not_come_back(connection: Connection) -> None:
    """An ended job cannot be made to run again, even by a row that breaks no CHECK."""
    insert(connection, "jobs", row("jobs", **ended("cancelled")))
    with refused_by("jobs_terminal_is_final"):
        connection.execute(TABLES["jobs"].update().values({**running(), "finished_at": None, "settle_id": None}))


def test_an_equal_value_of_another_make_is_a_change(connection: Connection) -> None:
    """24 hours equal 1 day, and are not the same."""
    insert(connection, "jobs", row("jobs", **ended(), stall_after="1 day"))
    with refused_by("jobs_terminal_is_final"):
        connection.exec_driver_sql("UPDATE supervise.jobs SET stall_after = '24 hours'")


def test_the_end_itself_may_change_everything(connection: Connection) -> None:
    """A job that has not ended is not touched by the trigger: its last statement writes what it likes."""
    insert(connection, "jobs", row("jobs", **running()))
    connection.execute(TABLES["jobs"].update().values({**ended("failed"), "current_token": None, "node": "pay"}))


def test_columns_of_later_migrations_are_protected(connection: Connection) -> None:
    """A column that nobody has thought of yet is final too, in sessions that were there before it."""
    insert(connection, "jobs", row("jobs", **ended()))
    with refused_by("jobs_terminal_is_final"):
        connection.exec_driver_sql("UPDATE supervise.jobs SET node = 'x'")
    connection.exec_driver_sql("ALTER TABLE supervise.jobs ADD COLUMN later text DEFAULT 'plain', ADD COLUMN empty int")
    connection.exec_driver_sql("UPDATE supervise.jobs SET settled_at = now()")
    for change in ("later = 'other'", "later = NULL", "empty = 1"):
        with refused_by("jobs_terminal_is_final"):
            connection.exec_driver_sql(f"UPDATE supervise.jobs SET {change}")
    insert(connection, "jobs", row("jobs", **settled()))
    connection.exec_driver_sql("UPDATE supervise.jobs SET log_seq = log_seq + 1")


# --- ended attempts --------------------------------------------------------------------------------------


def test_nothing_of_an_ended_attempt_changes(connection: Connection) -> None:
    """How an attempt ended, and all that was known of it, is final."""
    insert(connection, "attempts", row("attempts", ended_at=NOW, outcome="failed", cause="Boom"))
    for column in [column.name for column in TABLES["attempts"].columns]:
        with refused_by("attempts_ended_is_final"):
            connection.exec_driver_sql(f"UPDATE supervise.attempts SET {column} = {other('attempts', column)}")


def test_what_an_attempt_said_can_be_taken_away(connection: Connection) -> None:
    """Erasing takes the texts that may have values in them; nothing else of the attempt goes."""
    insert(
        connection,
        "attempts",
        row("attempts", ended_at=NOW, outcome="failed", cause="Boom", traceback="at 7"),
    )
    connection.exec_driver_sql("UPDATE supervise.attempts SET cause = NULL, traceback = NULL")
    with refused_by("attempts_ended_is_final"):
        connection.exec_driver_sql("UPDATE supervise.attempts SET worker = 'other', cause = NULL")


def test_a_live_attempt_is_renewed_and_ended(connection: Connection) -> None:
    """Before its end an attempt may change, and its end may change it."""
    insert(connection, "attempts", row("attempts"))
    connection.exec_driver_sql("UPDATE supervise.attempts SET lease_until = now(), heartbeat_at = now()")
    connection.exec_driver_sql("UPDATE supervise.attempts SET ended_at = now(), outcome = 'lost', cause = 'died'")


# --- deleting jobs ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", [{}, running(), parked(), ended(), settled()])
def test_a_job_is_not_deleted(connection: Connection, state: dict[str, Any]) -> None:
    """Whatever its state: without a tombstone no job goes."""
    insert(connection, "jobs", row("jobs", **state))
    with refused_by("jobs_go_by_prune"):
        connection.exec_driver_sql("DELETE FROM supervise.jobs")


@pytest.mark.parametrize("state", [{}, running(), parked(), ended()])
def test_a_tombstone_is_not_enough(connection: Connection, state: dict[str, Any]) -> None:
    """A job that is not settled does not go, even beside a tombstone."""
    insert(connection, "jobs", row("jobs", id="j", **state))
    insert(connection, "tombstones", row("tombstones", job_id="j", finished_at=NOW))
    with refused_by("jobs_go_by_prune"):
        connection.exec_driver_sql("DELETE FROM supervise.jobs")


def test_the_tombstone_of_an_earlier_life(connection: Connection) -> None:
    """An id that was used before has a tombstone, which is not this job's."""
    insert(connection, "tombstones", row("tombstones", job_id="j", finished_at=NOW.replace(year=2020)))
    insert(connection, "jobs", row("jobs", id="j", **settled()))
    with refused_by("jobs_go_by_prune"):
        connection.exec_driver_sql("DELETE FROM supervise.jobs")


# --- the log ---------------------------------------------------------------------------------------------


def test_the_log_does_not_change(connection: Connection) -> None:
    """No entry is rewritten, whatever of it."""
    insert(connection, "log", row("log"))
    for column in ("job_id", "event", "actor", "at", "sequence_num"):
        with refused_by("log_is_append_only"):
            connection.exec_driver_sql(f"UPDATE supervise.log SET {column} = {other('log', column)}")
    with refused_by("log_is_append_only"):
        connection.exec_driver_sql("UPDATE supervise.log SET data = data")


def test_the_log_is_not_deleted(connection: Connection) -> None:
    """No entry goes while its job is there, nor without a tombstone; after prune's two steps it goes."""
    insert(connection, "log", row("log", job_id="j"))
    with refused_by("log_is_append_only"):
        connection.exec_driver_sql("DELETE FROM supervise.log")
    insert(connection, "tombstones", row("tombstones", job_id="j"))
    insert(connection, "jobs", row("jobs", id="j", **settled()))
    with refused_by("log_is_append_only"):
        connection.exec_driver_sql("DELETE FROM supervise.log")
    connection.exec_driver_sql("DELETE FROM supervise.jobs")
    assert connection.exec_driver_sql("DELETE FROM supervise.log").rowcount == 1


@pytest.mark.parametrize("table", ["log", "jobs"])
def test_no_truncate(connection: Connection, table: str) -> None:
    """TRUNCATE, which fires no row trigger, is refused by itself, alone and in company."""
    with refused_by(f"{table}_no_truncate"):
        connection.exec_driver_sql(f"TRUNCATE supervise.{table}")
    with refused_by(f"{table}_no_truncate"):
        connection.exec_driver_sql(f"TRUNCATE supervise.votes, supervise.{table} RESTART IDENTITY CASCADE")


# --- ways round ------------------------------------------------------------------------------------------


def test_a_setting_is_no_way_round(connection: Connection) -> None:
    """session_replication_role, which silences ordinary triggers, does not silence these."""
    connection.exec_driver_sql("SET session_replication_role = replica")
    insert(connection, "log", row("log"))
    insert(connection, "jobs", row("jobs", **settled()))
    insert(connection, "attempts", row("attempts", ended_at=NOW, outcome="lost"))
    for trigger, statement in {
        "log_is_append_only": "DELETE FROM supervise.log",
        "log_no_truncate": "TRUNCATE supervise.log",
        "jobs_no_truncate": "TRUNCATE supervise.jobs",
        "jobs_go_by_prune": "DELETE FROM supervise.jobs",
        "jobs_terminal_is_final": "UPDATE supervise.jobs SET generation = 9",
        "attempts_ended_is_final": "UPDATE supervise.attempts SET number = 9",
    }.items():
        with refused_by(trigger):
            connection.exec_driver_sql(statement)


def test_other_tables_of_the_same_names_are_no_way_round(connection: Connection) -> None:
    """Tables of one's own that stand first in the search path do not stand in for the real ones."""
    insert(connection, "log", row("log", job_id="j"))
    insert(connection, "jobs", row("jobs", id="j", **settled()))
    connection.exec_driver_sql("CREATE TEMP TABLE jobs (id text)")
    connection.exec_driver_sql(
        "CREATE TEMP TABLE tombstones AS SELECT text 'j' AS job_id, finished_at FROM supervise.jobs"
    )
    connection.exec_driver_sql("SET search_path = pg_temp, supervise, pg_catalog")
    with refused_by("log_is_append_only"):
        connection.exec_driver_sql("DELETE FROM supervise.log")
    with refused_by("jobs_go_by_prune"):
        connection.exec_driver_sql("DELETE FROM supervise.jobs")


def test_other_operators_are_no_way_round(connection: Connection) -> None:
    """An operator of one's own that finds everything equal does not stand in for the real one."""
    insert(connection, "jobs", row("jobs", **ended()))
    connection.exec_driver_sql("CREATE SCHEMA mine")
    connection.exec_driver_sql(
        "CREATE FUNCTION mine.never(supervise.jobs, supervise.jobs) RETURNS boolean LANGUAGE sql AS 'SELECT false'"
    )
    connection.exec_driver_sql(
        "CREATE OPERATOR mine.*<> (LEFTARG = supervise.jobs, RIGHTARG = supervise.jobs, FUNCTION = mine.never)"
    )
    connection.exec_driver_sql("SET search_path = mine, pg_catalog")
    with refused_by("jobs_terminal_is_final"):
        connection.exec_driver_sql(f"UPDATE supervise.jobs SET run_id = '{uuid4()}'")


def test_every_function_pins_its_search_path(connection: Connection) -> None:
    """Also one that a later migration adds."""
    found = connection.exec_driver_sql(
        "SELECT proname, proconfig FROM pg_proc WHERE pronamespace = 'supervise'::regnamespace"
    )
    assert {tuple(setting) for _, setting in found} == {("search_path=pg_catalog, pg_temp",)}

"""The view that gives the decisions of a job back in one row, as the mission describes them."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from uuid import uuid4

import pytest
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from celery_supervise.engine import create_engine
from tests.postgres.rows import NOW, SOON, Row, insert, row

VIEW = sa.text("SELECT * FROM supervise.locked_decisions WHERE job_id = 'j'")


@pytest.fixture
def connection(database_url: str) -> Iterator[Connection]:
    """The application's connection."""
    engine = create_engine(database_url)
    with engine.connect() as connection:
        yield connection
    engine.dispose()


def test_a_job_that_decided_nothing(connection: Connection) -> None:
    """It has a row all the same, with nothing in it."""
    run = uuid4()
    insert(connection, "jobs", row("jobs", id="j", run_id=run))
    assert connection.execute(VIEW).mappings().one() == {
        "job_id": "j",
        "run_id": run,
        "current_node": None,
        "visited": [],
        "bindings": {},
        "saved_at": None,
    }


def test_the_decisions_of_the_current_run(connection: Connection) -> None:
    """Nodes in the order in which they were passed, values as they were stored; nothing of an earlier run."""
    run = uuid4()
    insert(connection, "jobs", row("jobs", id="j", run_id=run, node="pay"))
    insert(connection, "checkpoints", row("checkpoints", job_id="j", node="old", saved_at=SOON))
    nodes: dict[str, Row] = {
        "load": {"position": 7, "data": b"\x00\xff", "key_id": "k1"},
        "check": {"position": 9, "data": None, "size": 0},
        "pay": {"position": 8, "data": b"x" * 100, "size": 100, "saved_at": SOON},
    }
    for node, values in nodes.items():
        insert(connection, "checkpoints", row("checkpoints", job_id="j", run_id=run, node=node, **values))
    found = connection.execute(VIEW).mappings().one()
    assert (found["current_node"], found["visited"]) == ("pay", ["load", "pay", "check"])
    assert found["saved_at"] == SOON != NOW
    assert {node: base64.b64decode(value.pop("data")) for node, value in found["bindings"].items()} == {
        "load": b"\x00\xff",
        "pay": b"x" * 100,
    }
    assert found["bindings"] == {
        "load": {"encoding": "json", "key_id": "k1", "size": 3},
        "pay": {"encoding": "json", "key_id": None, "size": 100},
    }


def test_values_that_are_not_asked_for_are_not_read(connection: Connection) -> None:
    """Who selects the nodes alone pays nothing for the bindings: the plan does not make them."""
    explain = "EXPLAIN (VERBOSE, COSTS OFF) SELECT {} FROM supervise.locked_decisions WHERE job_id = 'j'"
    with_values = "\n".join(connection.exec_driver_sql(explain.format("bindings")).scalars())
    without = "\n".join(connection.exec_driver_sql(explain.format("visited")).scalars())
    assert "jsonb_object_agg" in with_values
    assert "jsonb_object_agg" not in without

"""Each invariant, broken once by writing past every rule of the database: found, and nothing else is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from uuid import uuid4

import pytest
import sqlalchemy as sa
from sqlalchemy.engine import Connection, Engine

from celery_supervise.engine import create_engine
from celery_supervise.invariants import INVARIANTS, check
from celery_supervise.lifecycle import TERMINAL, State
from example_project import embedded
from tests.postgres.looking import driven
from tests.postgres.shop import Shop, new_question
from tests.servers import created

HOUR = timedelta(hours=1)
ANN = "user:ann"
CHILDREN = ("attempts", "checkpoints", "cleanups", "log", "outbox", "payloads", "questions")


RULES = """
    SELECT format('DROP TRIGGER %I ON %s', tgname, tgrelid::regclass) FROM pg_trigger
    WHERE NOT tgisinternal AND tgrelid::regclass::text LIKE 'supervise.%'
    UNION ALL
    SELECT format('ALTER TABLE %s DROP CONSTRAINT %I', conrelid::regclass, conname) FROM pg_constraint
    WHERE connamespace = 'supervise'::regnamespace AND contype = 'c'"""


@pytest.fixture(scope="module")
def lawless(pg_server: embedded.Postgres, migrated: str) -> Iterator[Engine]:
    """A database without triggers and CHECKs, and its superuser: anything can be written, but duplicates."""
    with created(pg_server, migrated) as database:
        engine = create_engine(driven(database.superuser_url))
        with engine.begin() as connection:
            for statement in connection.execute(sa.text(RULES)).scalars().all():
                connection.execute(sa.text(statement))
        yield engine
        engine.dispose()


@pytest.fixture
def shop(lawless: Engine) -> Shop:
    """A service that is about to be broken, in a namespace of its own: nothing checks it afterwards."""
    return Shop(lawless, namespace=f"test-{uuid4()}")


@pytest.fixture
def broken(shop: Shop, lawless: Engine) -> Callable[[str, str], dict[str, str]]:
    """Run statements on a job (`:id`); what `check` then finds for it, by invariant."""

    def breaking(job_id: str, statements: str) -> dict[str, str]:
        with lawless.begin() as connection:
            run(connection, job_id, statements)
        return findings(shop, job_id)

    return breaking


def findings(shop: Shop, *job_ids: str) -> dict[str, str]:
    """What is found for these jobs, by invariant; one that is gone is in no namespace."""
    return {found.invariant: found.detail for found in check(shop.door) if found.job_id in job_ids}


def run(connection: Connection, job_id: str, statements: str) -> None:
    """Execute each statement with the job's id."""
    for statement in statements.split(";"):
        assert connection.execute(sa.text(statement), {"id": job_id}).rowcount != 0, statement


# --- jobs in every situation -----------------------------------------------------------------------------


def pending(shop: Shop) -> str:
    """It waits for a worker."""
    return shop.pending(deadline=HOUR).id


def running(shop: Shop) -> str:
    """A worker runs it."""
    return shop.running(deadline=HOUR).lease.job_id


def asked(shop: Shop) -> str:
    """It waits for an answer."""
    return shop.job_of(shop.asked(deadline=HOUR)).id


def answered(shop: Shop) -> str:
    """It was answered and waits for a worker."""
    question = shop.asked(deadline=HOUR)
    shop.supervisor.answer(question.id, value=True, actor=ANN)
    return shop.job_of(question).id


def agreed(shop: Shop) -> str:
    """Two people have answered it."""
    question = shop.asked(deadline=HOUR, question=new_question(approvals=2))
    for actor in (ANN, "user:bob"):
        shop.supervisor.answer(question.id, value=True, actor=actor)
    return shop.job_of(question).id


def paused(shop: Shop) -> str:
    """Somebody paused it."""
    return shop.paused(deadline=HOUR).id


def completed(shop: Shop) -> str:
    """It has completed."""
    return shop.ended(State.COMPLETED).id


def failed(shop: Shop) -> str:
    """It has failed."""
    return shop.ended(State.FAILED).id


SITUATIONS = (pending, running, asked, answered, agreed, paused, completed, failed)


@dataclass(frozen=True)
class Breach:
    """How an invariant is broken: the job it is done to, and what is written."""

    invariant: str
    make: Callable[[Shop], str]
    statements: str
    also: tuple[str, ...] = ()  # what is broken with it, necessarily


def breach(invariant: str, make: Callable[[Shop], str], statements: str, *also: str) -> Breach:
    """See Breach."""
    return Breach(invariant, make, statements, also)


BREACHES = [
    breach("parked_has_reason", asked, "UPDATE supervise.jobs SET watchdog_stop_reason = NULL WHERE id = :id"),
    breach(
        "parked_has_reason",
        paused,
        "UPDATE supervise.jobs SET watchdog_stop_reason = '' WHERE id = :id",
        "parked_can_go_on",
    ),
    breach(
        "running_has_attempt",
        running,
        "UPDATE supervise.attempts SET ended_at = now(), outcome = 'lost' WHERE job_id = :id",
    ),
    breach(
        "running_has_attempt",
        running,
        "UPDATE supervise.jobs SET current_token = gen_random_uuid() WHERE id = :id",
        "attempt_has_job",
    ),
    breach(
        "attempt_has_job", completed, "UPDATE supervise.attempts SET ended_at = NULL, outcome = NULL WHERE job_id = :id"
    ),
    breach(
        "cleanups_are_sent",
        failed,
        "INSERT INTO supervise.cleanups (job_id, name, attempt_token, data, encoding)"
        " VALUES (:id, 'file', gen_random_uuid(), 'x', 'json');"
        " UPDATE supervise.jobs SET settled_at = now() WHERE id = :id",
    ),
    breach("attempts_counted", running, "UPDATE supervise.jobs SET attempt_count = 2 WHERE id = :id"),
    breach("ticket_is_published", pending, "DELETE FROM supervise.outbox WHERE job_id = :id"),
    breach("ticket_is_published", answered, "UPDATE supervise.outbox SET done_at = now() WHERE job_id = :id"),
    breach(
        "parked_can_go_on",
        answered,
        "UPDATE supervise.jobs SET ticket_id = NULL, ticket_due_at = NULL, ticket_released_at = NULL WHERE id = :id",
    ),
    breach(
        "question_parks",
        asked,
        "UPDATE supervise.jobs SET question_id = NULL, wait_until = NULL WHERE id = :id",
        "parked_can_go_on",
    ),
    breach(
        "question_parks",
        answered,
        "UPDATE supervise.questions SET status = 'pending', answer = NULL WHERE job_id = :id",
    ),
    breach(
        "question_exists",
        asked,
        "UPDATE supervise.questions SET status = 'closed', closed_at = now() WHERE job_id = :id",
    ),
    breach("question_exists", asked, "DELETE FROM supervise.questions WHERE job_id = :id"),
    breach(
        "answer_has_votes",
        agreed,
        "DELETE FROM supervise.votes WHERE actor = 'bob' AND question_id IN"
        " (SELECT id FROM supervise.questions WHERE job_id = :id)",
    ),
    breach("log_gapless", running, "DELETE FROM supervise.log WHERE job_id = :id AND sequence_num = 1"),
    breach("log_gapless", running, "DELETE FROM supervise.log WHERE job_id = :id AND sequence_num = 2"),
    breach("log_gapless", running, "UPDATE supervise.log SET sequence_num = 3 WHERE job_id = :id AND sequence_num = 2"),
    breach("log_gapless", running, "UPDATE supervise.jobs SET log_seq = 7 WHERE id = :id"),
    breach(
        "log_in_order",
        running,
        "UPDATE supervise.log SET at = at - interval '1 hour' WHERE job_id = :id AND sequence_num = 2",
    ),
    breach(
        "ends_once",
        completed,
        "UPDATE supervise.log SET event = 'claimed' WHERE job_id = :id AND event = 'completed'",
    ),
    breach(
        "ends_once", completed, "UPDATE supervise.log SET event = 'failed' WHERE job_id = :id AND event = 'claimed'"
    ),
    breach("ends_once", running, "UPDATE supervise.log SET event = 'expired' WHERE job_id = :id AND event = 'claimed'"),
    breach("end_is_told", completed, "UPDATE supervise.jobs SET settle_due_at = NULL WHERE id = :id"),
    breach("end_is_told", failed, "UPDATE supervise.jobs SET settle_id = NULL WHERE id = :id"),
    breach("one_result", failed, "UPDATE supervise.payloads SET kind = 'result' WHERE job_id = :id AND kind = 'error'"),
    breach(
        "one_result",
        completed,
        "INSERT INTO supervise.payloads (job_id, kind, ref, data, encoding)"
        " VALUES (:id, 'result', gen_random_uuid(), 'x', 'json')",
    ),
    breach("envelope_exists", pending, "DELETE FROM supervise.payloads WHERE job_id = :id"),
    *(
        breach("parent_exists", make, "DELETE FROM supervise.jobs WHERE id = :id")
        for make in (pending, running, asked, completed)
    ),
]


@pytest.mark.parametrize("case", BREACHES, ids=lambda case: f"{case.invariant}-{case.make.__name__}")
def test_a_broken_invariant_is_found(shop: Shop, broken: Callable[[str, str], dict[str, str]], case: Breach) -> None:
    """The job is named with what is wrong; jobs that are whole are not."""
    others = [make(shop) for make in SITUATIONS]
    job_id = case.make(shop)
    assert findings(shop, job_id, *others) == {}
    assert set(broken(job_id, case.statements)) == {case.invariant, *case.also}
    assert findings(shop, *others) == {}


@pytest.mark.parametrize("table", CHILDREN)
def test_nothing_is_left_of_a_job_that_is_gone(
    shop: Shop, broken: Callable[[str, str], dict[str, str]], table: str
) -> None:
    """A row of any table whose job is not there is found, and the table is named."""
    job_id = asked(shop)
    others = "; ".join(f"DELETE FROM supervise.{name} WHERE job_id = :id" for name in CHILDREN if name != table)
    keep = {
        "checkpoints": "INSERT INTO supervise.checkpoints (job_id, run_id, node, kind, position, attempt_token,"
        " saved_at, logged_at) VALUES (:id, gen_random_uuid(), 'n', 'step', 1, gen_random_uuid(), now(), now())",
        "cleanups": "INSERT INTO supervise.cleanups (job_id, name, attempt_token, encoding)"
        " VALUES (:id, 'n', gen_random_uuid(), 'json')",
    }
    for name, statement in keep.items():
        broken(job_id, statement) if name in (table, "checkpoints", "cleanups") else None
    found = broken(job_id, f"DELETE FROM supervise.jobs WHERE id = :id; {others}")
    assert found == {"parent_exists": table}


def test_every_invariant_is_broken_above() -> None:
    """No rule is without a test that it can find something."""
    assert {case.invariant for case in BREACHES} == {rule.name for rule in INVARIANTS}


def test_another_namespaces_jobs_are_its_own(shop: Shop, lawless: Engine) -> None:
    """What is wrong in one namespace is told to those who look at it."""
    second = Shop(lawless, namespace=f"second-{uuid4()}")
    job_id = paused(second)
    with lawless.begin() as connection:
        run(connection, job_id, "UPDATE supervise.jobs SET watchdog_stop_reason = NULL WHERE id = :id")
    assert findings(shop, job_id) == {}
    assert "parked_has_reason" in findings(second, job_id)


def test_a_finding_says_what_it_means(shop: Shop, broken: Callable[[str, str], dict[str, str]]) -> None:
    """For a person: the rule in words, the job, and what it looks like."""
    job_id = paused(shop)
    broken(job_id, "UPDATE supervise.jobs SET watchdog_stop_reason = NULL WHERE id = :id")
    (finding,) = [found for found in check(shop.door) if found.invariant == "parked_has_reason"]
    assert (finding.job_id, finding.detail, finding.meaning) == (
        job_id,
        "parked (no reason)",
        "a parked job says why",
    )


@pytest.mark.parametrize("state", sorted(TERMINAL))
def test_jobs_that_ended_are_whole(shop: Shop, state: State) -> None:
    """Settled or not."""
    assert findings(shop, shop.ended(state).id) == {}

"""What grows and what must not: checkpoints with their number, re-entry, claims beside parked jobs."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from datetime import timedelta
from uuid import UUID, uuid4

import sqlalchemy as sa

from benchmarks.measure import Ratio, milliseconds
from benchmarks.place import Place, twin
from benchmarks.statements import TURNS, VALUE, WORKER, held, new_job
from celery_supervise.attempt import StoreJournal
from celery_supervise.body import Body
from celery_supervise.holding import Holding
from celery_supervise.model import NewQuestion, NodeKind

NODES = 10_000
PARKED = 100_000
FEW = 200
QUERIES = 25


def ratios(place: Place) -> Iterator[Ratio]:
    """Three of them."""
    job = held(place, "long")
    early = milliseconds(_save(job), range(10, 10 + FEW))
    for number in range(10 + FEW, NODES - FEW):
        _save(job)(number)
    late = milliseconds(_save(job), range(NODES - FEW, NODES))
    detail = f"{late:.2f} ms / {early:.2f} ms"
    yield Ratio(f"checkpoint: the {NODES:,}th / the 10th", late / early, 1.2, detail)
    yield from _reentry(place, job)
    yield _claims(place)


def _save(job: Holding):  # noqa: ANN202  # a lambda with a name
    return lambda number: job.checkpoint(f"node{number:06d}", NodeKind.STEP, VALUE)


def _reentry(place: Place, job: Holding) -> Iterator[Ratio]:
    statements: list[str] = []

    def count(_c: object, _cursor: object, statement: str, *_: object) -> None:
        statements.append(statement)

    sa.event.listen(place.door.engine, "before_cursor_execute", count)
    try:
        seconds = milliseconds(lambda _: _enter(place, job), range(1)) / 1000
    finally:
        sa.event.remove(place.door.engine, "before_cursor_execute", count)
    yield Ratio(f"re-entry: seconds for {NODES:,} decided steps", seconds, 1.0, "")
    yield Ratio(f"re-entry: queries for {NODES:,} decided steps", len(statements), QUERIES, "")


def _enter(place: Place, job: Holding) -> None:
    journal = StoreJournal(
        place.door, job, question_ttl=timedelta(days=1), on_park=_nothing, on_ticket=_nothing_with_two
    )
    body = Body(journal, job_id=job.lease.job_id)
    for number in range(10, NODES):
        body.step(f"node{number:06d}", _never)


def _nothing(_question: NewQuestion) -> None:
    return None


def _nothing_with_two(_job: str, _ticket: UUID) -> None:
    return None


def _never() -> dict[str, str]:
    raise AssertionError("this step is decided")


def _claims(place: Place) -> Ratio:
    """In turns on two databases that differ in this alone."""
    with twin(place) as empty:
        _park_many(place)
        pairs = [(_claim_time(place, turn), _claim_time(empty, turn)) for turn in range(TURNS)]
    value = statistics.median(one / other for one, other in pairs)
    beside, alone = (statistics.median(column) for column in zip(*pairs, strict=True))
    detail = f"{beside:.2f} ms / {alone:.2f} ms"
    return Ratio(f"claim: beside {PARKED:,} parked jobs / beside none", value, 1.2, detail)


def _claim_time(place: Place, turn: int) -> float:
    tickets = [uuid4() for _ in range(FEW)]
    for number, ticket_id in enumerate(tickets):
        place.supervisor.submit(new_job(f"turn{turn}-{number}", ticket_id))
    return milliseconds(lambda n: place.supervisor.claim(f"turn{turn}-{n}", tickets[n], WORKER), range(FEW))


def _park_many(place: Place) -> None:
    """Copies of one parked job, made by SQL: what matters is how many rows there are."""
    model = held(place, "model")
    question = NewQuestion(uuid4(), "approve", VALUE, {"type": "boolean"}, "digest")
    model.ask(question, ttl=timedelta(days=7))
    with place.door.engine.begin() as connection:
        for table, key, own in (("jobs", "id", "question_id"), ("questions", "job_id", "id")):
            names = connection.execute(
                sa.text(
                    "SELECT column_name FROM information_schema.columns"
                    " WHERE table_schema = 'supervise' AND table_name = :table ORDER BY ordinal_position"
                ),
                {"table": table},
            ).scalars()
            made = {key: "'parked' || n", own: "md5('question' || n)::uuid"}
            columns = list(names)
            values = ", ".join(made.get(name, f"m.{name}") for name in columns)
            connection.exec_driver_sql(
                f"INSERT INTO supervise.{table} ({', '.join(columns)}) SELECT {values}"
                f" FROM supervise.{table} AS m, generate_series(1, {PARKED}) AS n WHERE m.{key} = 'model'"
            )
    with place.door.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.exec_driver_sql("VACUUM ANALYZE supervise.jobs, supervise.questions")
        connection.exec_driver_sql("CHECKPOINT")

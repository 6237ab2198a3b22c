"""The real service beside a small model of it: whatever is done in whatever order, both are in the same state."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from contextlib import nullcontext
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import hypothesis.strategies as st
import pytest
from hypothesis import Phase, settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test
from sqlalchemy.engine import Engine

from celery_supervise import invariants, queries, versions
from celery_supervise.errors import Conflict, LeaseLost, NotAllowed
from celery_supervise.holding import Holding
from celery_supervise.lifecycle import TABLE, Event
from celery_supervise.model import Lease, Moved, NodeKind
from celery_supervise.options import Options
from celery_supervise.relay import Relay, Told, mark_settled
from celery_supervise.store.leases import ask_hand_over
from celery_supervise.sweeps import EXPIRY, REAPING, SHELVING, STALLING, Pass, Sweeper
from tests.postgres.beside import Model, Tracked
from tests.postgres.looking import backdate, execute, lapse
from tests.postgres.shop import Shop, failure, new_job, new_question, retry, stored

HOUR = timedelta(hours=1)
DAY = timedelta(days=1)
ANN, DORA = "user:ann", "user:dora"
PEOPLE = ("ann", "bob", "carl")
MOST_JOBS = 4
DRIVEN = set(Event) - {
    *(Event.ERASE, Event.REPLACE, Event.REPLACE_PLAIN),
}
"""The events that the service has operations for."""
THOROUGH = os.environ.get("HYPOTHESIS_PROFILE") == "thorough"


LIKELY = {
    "pending": [*["deliver"] * 12, "shelve"],
    "running": [
        *["checkpoint"] * 8,
        *["ask"] * 8,
        *["hand_over", "retry", "lose"] * 2,
        *["complete", "fail", "shut_down", "pause", "stand_still", "cancel"],
    ],
    "parked": [
        *["answer"] * 8,
        *["deliver"] * 8,
        *["resume"] * 4,
        *["take_up"] * 2,
        "pause",
        "reassign",
        "withdraw",
        "shelve",
    ],
}
"""What a job in this state is likely to meet: without it most sequences would end before they begin."""
ANY = (
    "submit",
    "deliver",
    "deliver_again",
    "come_back_late",
    "let_time_pass",
    "sweep",
    "answer",
    "reassign",
    "withdraw",
    "pause",
    "resume",
    "cancel",
    "extend",
    "shelve",
    "take_up",
    "hold",
    "release",
    "release",
    "tell",
    "relay",
)


class Machine(RuleBasedStateMachine):
    """A few jobs, in a namespace of their own."""

    def __init__(self, engine: Engine, seen: Counter[str]) -> None:
        super().__init__()
        self.shop = Shop(engine, namespace=f"machine-{uuid4()}")
        self.jobs: list[Tracked] = []
        self.seen = seen
        self.held = False

    @rule(data=st.data())
    def something_happens(self, data: st.DataObject) -> None:
        """What is likely in the job's state, most of the time; else anything, also what must be refused."""
        alive = [job for job in self.jobs if not job.model.ended]
        if not alive:
            self.submit(None, data)
            return
        job = data.draw(st.sampled_from([*alive, *alive, *self.jobs]), label="job")
        operation = data.draw(st.sampled_from([*LIKELY.get(job.model.state, []), *ANY]), label="operation")
        getattr(self, operation)(job, data)

    # --- producers and workers ---------------------------------------------------------------------------

    def submit(self, _: Tracked | None, data: st.DataObject) -> None:
        """A job is submitted, twice."""
        if len(self.jobs) >= MOST_JOBS:
            return
        limit = data.draw(st.integers(1, 3), label="limit")
        on_stall = data.draw(st.sampled_from(["log", "log", "cancel", "fail"]), label="on_stall")
        new = new_job(lost_limit=limit, deadline=HOUR, stall_after=HOUR, on_stall=on_stall)
        assert self.shop.supervisor.submit(new).created
        assert not self.shop.supervisor.submit(new).created
        self.jobs.append(Tracked(new.id, Model(limit=limit, on_stall=on_stall)))

    def deliver(self, job: Tracked, _: st.DataObject) -> None:
        """The job's message arrives, or one of a ticket that never was."""
        ticket = self.shop.job(job.id).ticket_id
        claimed = self.shop.supervisor.claim(job.id, ticket or uuid4(), self.shop.claimer)
        model = job.model
        if not model.ticket or self.held:
            assert claimed is None
            return
        assert ticket is not None
        job.used.append(ticket)
        verdict = model.judge("running")
        model.to(verdict, "claimed" if verdict == "running" else verdict)
        model.left = False
        if isinstance(claimed, Lease):
            model.attempts += 1
            job.holding = self.shop.supervisor.holding(claimed, worker="w")
        assert isinstance(claimed, Lease) is (verdict == "running")

    def deliver_again(self, job: Tracked, _: st.DataObject) -> None:
        """Messages whose tickets are used up arrive."""
        for ticket in job.used:
            assert self.shop.supervisor.claim(job.id, ticket, self.shop.claimer) is None

    # --- bodies ------------------------------------------------------------------------------------------

    def checkpoint(self, job: Tracked, data: st.DataObject) -> None:
        """The body saves a node."""
        node, value = data.draw(st.sampled_from("ab"), label="node"), data.draw(st.sampled_from("123"))
        moved = job.held.checkpoint(node, NodeKind.STEP, stored(value))
        model = job.model
        if node not in model.nodes:
            model.log.append("checkpoint")
        model.nodes[node], model.stalled = value, False
        verdict = model.judge("checkpoint")
        if verdict != "checkpoint":
            model.to(verdict, verdict)
            job.left()
        assert moved.state == model.state

    def ask(self, job: Tracked, data: st.DataObject) -> None:
        """The body asks; where it has an answer, anew."""
        key = data.draw(st.sampled_from("xy"), label="key")
        approvals = data.draw(st.sampled_from([1, 1, 2]), label="approvals")
        question, before, model = new_question(key, approvals=approvals), job.asked.get(key), job.model
        job.held.ask(question, ttl=HOUR, supersedes=before.id if before and key in model.answers else None)
        verdict = model.judge("asked")
        if verdict == "asked":
            model.ask(key, approvals)
            job.asked[key] = question
        else:
            model.to(verdict, verdict)
        job.left()

    def end(self, job: Tracked, state: str, entry: str, call: Callable[[Holding], object]) -> bool:
        """An end of an attempt, judged; whether it was what it was meant to be."""
        call(job.held)
        verdict = job.model.judge(state)
        job.model.to(verdict, entry if verdict == state else verdict)
        job.left()
        return verdict == state

    def complete(self, job: Tracked, _: st.DataObject) -> None:
        """The body returns."""
        self.end(job, "completed", "completed", lambda holding: holding.complete(stored('"done"')))

    def fail(self, job: Tracked, _: st.DataObject) -> None:
        """The body raises."""
        self.end(job, "failed", "failed", lambda holding: holding.fail(failure()))

    def hand_over(self, job: Tracked, _: st.DataObject) -> None:
        """The body leaves the job to another worker."""
        self.end(job, "pending", "handed_over", lambda holding: holding.hand_over())

    def retry(self, job: Tracked, data: st.DataObject) -> None:
        """The body asks for a retry, with the same input or another."""
        model, other = job.model, data.draw(st.booleans(), label="other input")
        again = retry(digest=str(uuid4()) if other else model.digest)
        if self.end(job, "pending", "retry_scheduled", lambda holding: holding.retry(again, failure())) and other:
            model.digest, model.nodes, model.answers, job.asked = again.input_digest, {}, {}, {}

    def come_back_late(self, job: Tracked, _: st.DataObject) -> None:
        """An attempt that is over writes again: nothing but, at most, a line in the log."""
        for holding in job.stale:
            before = self.shop.job(job.id)
            try:
                assert not holding.checkpoint("late", NodeKind.STEP, stored("0")).changed
            except LeaseLost:
                job.model.log.append("refused")
            assert self.shop.job(job.id).generation == before.generation

    # --- workers' parents and time -----------------------------------------------------------------------

    def lose(self, job: Tracked, data: st.DataObject) -> None:
        """The attempt's process dies, or nobody renews its lease."""
        if data.draw(st.booleans(), label="reaped"):
            lapse(self.shop, job.id)
            moved = Sweeper(self.shop.door, period=HOUR)._move(Pass(REAPING), None)
            assert [one.job_id for one in moved] == [job.id]
        else:
            assert self.shop.lose(job.held) is not None
        model = job.model
        model.lost += 1
        verdict = model.judge("pending")
        if verdict == "pending" and model.lost < model.limit:
            model.to("pending", "lease_lost")
        else:
            model.log.append("lease_lost")
            ended = "failed" if verdict == "pending" else verdict
            model.to(ended, ended, "worker_lost" if ended == "failed" else None)
        job.left()

    def let_time_pass(self, job: Tracked, _: st.DataObject) -> None:
        """The deadline passes."""
        if not job.model.ended:
            backdate(self.shop, job.id, "expires_at")
            job.model.late = True

    def sweep(self, _: Tracked, __: st.DataObject) -> None:
        """The sweep ends what is over, all of it."""
        moved = {one.job_id for one in Sweeper(self.shop.door, period=HOUR)._move(Pass(EXPIRY), None)}
        over = [job for job in self.jobs if job.model.late and not job.model.ended]
        assert moved == {job.id for job in over}
        for job in over:
            verdict = job.model.judge("expired")
            job.model.to(verdict, verdict)
            job.left()

    def shut_down(self, job: Tracked, _: st.DataObject) -> None:
        """The worker leaves: the next checkpoint says so, unless it is judged to be something else."""
        ask_hand_over(self.shop.door, self.shop.claimer.incarnation)
        model = job.model
        if model.judge("checkpoint") == "checkpoint":
            assert job.held.checkpoint("leaving", NodeKind.STEP, None).hand_over
            if "leaving" not in model.nodes:
                model.log.append("checkpoint")
            model.nodes["leaving"], model.stalled = "", False

    def stand_still(self, job: Tracked, _: st.DataObject) -> None:
        """The body makes no progress: noted once, and the end of the job where its task says so."""
        execute(self.shop, "UPDATE supervise.jobs SET stage_at = now() - interval '2 h', progress_at = NULL"
                " WHERE id = :id", id=job.id)  # fmt: skip
        moved = Sweeper(self.shop.door, period=HOUR)._move(Pass(STALLING), None)
        model = job.model
        assert [one.job_id for one in moved] == [job.id] * (not model.stalled)
        if model.stalled:
            return
        model.stalled = True
        model.log.append("stalled")
        if model.on_stall != "log":
            wanted = {"cancel": "cancelled", "fail": "failed"}[model.on_stall]
            verdict = model.judge(wanted)
            model.to(verdict, verdict, "stalled" if verdict == wanted and not model.cancelled else None)
            job.left()

    # --- people ------------------------------------------------------------------------------------------

    def answer(self, job: Tracked, data: st.DataObject) -> None:
        """Somebody answers every question that the run ever asked."""
        model, value = job.model, data.draw(st.booleans(), label="value")
        person = data.draw(st.sampled_from(PEOPLE), label="person")
        old_page = data.draw(st.sampled_from([False] * 4 + [True]), label="old page")
        for key, question in tuple(job.asked.items()):
            call: dict[str, Any] = {"value": value, "actor": f"user:{person}"}
            call["expected_generation"] = model.generation - old_page
            if key != model.question:
                error: type[Exception] = Conflict
            elif model.people and person not in model.people:
                error = NotAllowed
            elif not old_page and model.approvals > 1 and model.votes.get(person) is value:
                assert not self.shop.supervisor.answer(question.id, **call).changed
                continue
            elif old_page or model.late:
                error = Conflict
            else:
                self.shop.supervisor.answer(question.id, **call)
                model.vote(person, value)
                continue
            with pytest.raises(error):
                self.shop.supervisor.answer(question.id, **call)
            if key == model.question and model.late and not old_page and error is Conflict:
                model.to("expired", "expired")

    def reassign(self, job: Tracked, data: st.DataObject) -> None:
        """Somebody gives the newest question to others."""
        to = data.draw(st.sampled_from([PEOPLE[:2], PEOPLE[1:], PEOPLE]), label="to")
        self.hand(job, "reassigned", lambda question: self.shop.supervisor.reassign(question, to=to, actor=DORA), to)

    def withdraw(self, job: Tracked, _: st.DataObject) -> None:
        """Somebody takes it back."""
        self.hand(job, "withdrawn", lambda question: self.shop.supervisor.withdraw(question, actor=DORA))

    def hand(self, job: Tracked, entry: str, call: Callable[[UUID], Moved], to: tuple[str, ...] | None = None) -> None:
        """Give an open question to others, or take it back; one that is not open is a conflict."""
        model, question = job.model, next(reversed(job.asked.values()), None)
        if model.question is not None:
            question = job.asked[model.question]
        if question is None:
            return
        if to is not None and model.question is not None and set(to) == set(model.people):
            assert not call(question.id).changed
        elif model.question is None or model.late:
            with pytest.raises(Conflict):
                call(question.id)
            if model.question is not None:
                model.to("expired", "expired")
        else:
            call(question.id)
            if to is None:
                model.go_on(entry)
            else:
                model.people, model.votes = to, {}
                model.flag(entry)

    def pause(self, job: Tracked, _: st.DataObject) -> None:
        """Somebody asks for a pause."""
        model = job.model
        if model.ended:
            with pytest.raises(Conflict):
                self.shop.supervisor.pause(job.id, actor=ANN)
            return
        changed = self.shop.supervisor.pause(job.id, actor=ANN).changed
        assert changed is not (model.paused or model.idle)
        if changed:
            model.paused = True
            model.flag("pause_requested")

    def resume(self, job: Tracked, _: st.DataObject) -> None:
        """Somebody resumes the job, or takes the pause back."""
        model = job.model
        if model.idle:
            self.shop.supervisor.resume(job.id, actor=ANN)
            model.take_up()
            model.paused = False
        elif model.paused and not model.ended:
            self.shop.supervisor.resume(job.id, actor=ANN)
            model.paused = False
            model.flag("pause_withdrawn")
        else:
            with pytest.raises(Conflict):
                self.shop.supervisor.resume(job.id, actor=ANN)

    def cancel(self, job: Tracked, _: st.DataObject) -> None:
        """Somebody cancels."""
        model = job.model
        if model.ended:
            with pytest.raises(Conflict):
                self.shop.supervisor.cancel(job.id, actor=ANN)
            return
        changed = self.shop.supervisor.cancel(job.id, actor=ANN).changed
        assert changed is not model.cancelled
        if changed and model.state == "running":
            model.flag("cancel_requested")
        elif changed:
            model.to("cancelled", "cancelled")
        model.cancelled = True

    def extend(self, job: Tracked, _: st.DataObject) -> None:
        """Somebody gives more time to the job, and to each question that the run ever asked."""
        model = job.model
        with nullcontext() if not (model.ended or model.late) else pytest.raises(Conflict):
            self.shop.supervisor.extend(job.id, by=HOUR, actor=ANN)
            model.flag("extended")
        for key, question in job.asked.items():
            with nullcontext() if key == model.question and not model.late else pytest.raises(Conflict):
                self.shop.supervisor.extend_question(question.id, by=HOUR, actor=ANN)
                model.flag("extended")

    # --- code of another version, holds -------------------------------------------------------------------

    def shelve(self, job: Tracked, _: st.DataObject) -> None:
        """A worker that cannot run the job leaves it, and none that can comes before the grace is over."""
        ticket, model = self.shop.job(job.id).ticket_id, job.model
        left = versions.leave(self.shop.door, job.id, ticket or uuid4(), versions=(2,), version=2)
        assert (left is not None) is (model.ticket and not model.late and not self.held)
        if left is None:
            return
        backdate(self.shop, job.id, "incompatible_since", by=DAY)
        moved = Sweeper(self.shop.door, period=HOUR)._move(Pass(SHELVING), None)
        assert [one.job_id for one in moved] == [job.id]
        model.shelve()

    def take_up(self, _: Tracked, __: st.DataObject) -> None:
        """A worker comes that can run what was parked so."""
        moved = versions.take_up(self.shop.door, {"shop.task": Options()})
        found = [job for job in self.jobs if job.model.left and job.model.idle]
        assert {one.job_id for one in moved} == {job.id for job in found}
        for job in found:
            job.model.take_up()

    def hold(self, _: Tracked, __: st.DataObject) -> None:
        """Somebody holds the task: none of its jobs starts, and nothing else changes."""
        self.shop.supervisor.hold(task="shop.task", reason="for now", actor=ANN)
        self.held = True

    def release(self, job: Tracked, data: st.DataObject) -> None:
        """Somebody releases it; the relay lets out what waits."""
        if self.held:
            self.shop.supervisor.release(task="shop.task", actor=ANN)
            self.held = False
            self.relay(job, data)

    # --- telling -----------------------------------------------------------------------------------------

    def tell(self, _: Tracked, __: st.DataObject) -> None:
        """Celery is told of every end."""
        told = [Told(job.id, self.shop.job(job.id).settle_id or uuid4()) for job in self.jobs]
        done = mark_settled(self.shop.door, told, actor="relay")
        assert set(done) == {job.id for job in self.jobs if job.model.ended and not job.model.settled}
        self.were_told(set(done))

    def were_told(self, ids: set[str]) -> None:
        """Note the ends that Celery was told of: each once."""
        for job in self.jobs:
            if job.id in ids:
                assert job.model.ended
                assert not job.model.settled
                job.model.settled = True
                job.model.log.append("settled")

    def relay(self, _: Tracked, __: st.DataObject) -> None:
        """Every ticket that is out has been sent, and every end that was due has been told."""
        self.shop.broker.told.clear()
        execute(self.shop, "UPDATE supervise.outbox SET publish_until = NULL WHERE namespace = :ns",
                ns=self.shop.door.namespace)  # fmt: skip
        Relay(self.shop.door, self.shop.broker, settling=HOUR).run_once()
        sent = {message.id for message in self.shop.broker.messages}
        out = {ticket for job in self.jobs if (ticket := self.shop.job(job.id).ticket_id)}
        assert self.held or out <= sent
        self.were_told({settlement.job.id for settlement in self.shop.broker.told})

    # --- the same ----------------------------------------------------------------------------------------

    @invariant()
    def model_and_service_agree(self) -> None:
        """State, reason, log, counters, ticket, question, pause: all that a client can see."""
        for job in self.jobs:
            found, model = self.shop.job(job.id), job.model
            log = self.shop.door.all(queries.LOG, job_id=job.id, page=10_000, before=None, events=None)
            assert [entry["event"] for entry in reversed(log)] == model.log
            assert (str(found.state), found.stop_reason) == (model.state, model.reason)
            assert (found.generation, found.lost_count, found.attempts) == (
                model.generation,
                model.lost,
                model.attempts,
            )
            assert (found.ticket_id is not None) is model.ticket
            assert (found.question_id is not None) is (model.question is not None)
            assert (found.pause_requested_at is not None) is model.paused
            self.journal_agrees(job, found.run_id)

    def journal_agrees(self, job: Tracked, run_id: UUID) -> None:
        """What the run has decided is what the model remembers."""
        nodes = queries.values(self.shop.door, job.id, run_id, list(job.model.nodes))
        assert {name: value.data.decode() if value else "" for name, value in nodes.items()} == job.model.nodes
        if job.model.question is not None:
            found = self.shop.supervisor.question(job.asked[job.model.question].id)
            assert (set(found.voted), found.to) == (set(job.model.votes), job.model.people)
        answers = queries.answers(self.shop.door, job.id, run_id)
        given = {key: stored("true" if value else "false") for key, value in job.model.answers.items()}
        assert {key: answer.value for key, answer in answers.items()} == given

    def teardown(self) -> None:
        """What `doctor` checks holds, too."""
        assert invariants.check(self.shop.door) == []
        for job in self.jobs:
            self.seen.update([*job.model.log, job.model.state])


def run(machine: Any, **changes: Any) -> None:
    """The same examples each time, unless the profile asks for more."""
    bounds = {"max_examples": 1000 if THOROUGH else 60, "stateful_step_count": 40, "derandomize": not THOROUGH}
    run_state_machine_as_test(machine, settings=settings(deadline=None, **{**bounds, **changes}))


def test_the_service_is_the_model(engine: Engine) -> None:
    """Random sequences of everything that can happen leave the rows, the log and the journal as the model says."""
    seen: Counter[str] = Counter()
    run(lambda: Machine(engine, seen))
    happened = {entry.log for moves in TABLE.values() for event, entry in moves.items() if event in DRIVEN}
    assert (happened | {"stalled"}) - set(seen) == set(), "the examples no longer reach what they are for"


def test_the_machine_can_find_something(engine: Engine) -> None:
    """A service whose lost attempts are not counted is found out: the test above can fail."""

    class Forgetful(Machine):
        """Its model does not count."""

        def lose(self, job: Tracked, data: st.DataObject) -> None:
            super().lose(job, data)
            job.model.lost = 0

    with pytest.raises(AssertionError):
        run(lambda: Forgetful(engine, Counter()), phases=[Phase.generate])  # that it fails is enough

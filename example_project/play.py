"""The chapters of the demo, and the proofs at its end."""

from __future__ import annotations

import shlex
from contextlib import suppress
from typing import Any

from celery_supervise import QuestionClosed, State, Supervisor
from celery_supervise.model import Job
from example_project.app import app
from example_project.bank import Bank
from example_project.demo import BATCH, ROOT, VENDORS, Stage, asked_here, kill_group, until
from example_project.story import Story
from example_project.tasks import pay_vendors

KILL_AFTER = 1500
"""Payments after which the worker is killed."""


class Play:
    """One performance: a job, its bank, its workers."""

    def __init__(self, story: Story, here: Stage) -> None:
        self._story = story
        self._here = here
        self._supervise = Supervisor.of(app)
        self._bank = Bank(here.books)
        self._last: tuple[str, str] | None = None  # what was being paid when the worker died

    def _job(self, job_id: str) -> Job:
        return self._supervise.job(job_id)

    def _in_state(self, job_id: str, state: State) -> Job:
        def arrived() -> Job | None:
            job = self._job(job_id)
            return job if job.state is state else None

        found: Job = until(f"the job is {state}", arrived)
        return found

    # --- the chapters --------------------------------------------------------------------------------------

    def migrate(self) -> None:
        """The tables."""
        self._story.chapter("A database and a broker of its own; the tables")
        self._story.show(self._here.run("supervise", "migrate"))

    def submit_and_park(self) -> tuple[str, str]:
        """Submit; the job asks, and frees its worker."""
        self._story.chapter("A payment run is submitted, as any Celery task is: pay_vendors.delay(…)")
        with self._here.worker("worker-1") as worker:
            result = pay_vendors.delay(BATCH, str(VENDORS), str(self._here.folder / "out"))
            self._story.say(f"job {result.id}: worker-1 (pid {worker.pid}) reads {VENDORS.name} and asks:")
            self._in_state(result.id, State.PARKED)
            question = self._supervise.questions(job_id=result.id)[0]
            self._story.show(self._here.run("supervise", "questions"))
            self._story.say(f"Celery says: {result.state} {result.info['question']!r}; the worker has nothing in hand:")
            self._story.show(str(until("the worker answers", lambda: app.control.inspect(timeout=2).active())))
            self._story.chapter("Meanwhile the worker is shut down: no process, no thread, no connection waits")
        self._story.say(f"the job is {self._job(result.id).state}: {self._job(result.id).stop_reason}")
        return result.id, str(question.id)

    def answer(self, question_id: str, *, auto: bool) -> None:
        """Somebody answers, while no worker runs at all."""
        self._story.chapter("The answer, while no worker runs: it is committed first, and waits for one")
        words = ["supervise", "answer", question_id, "approved=true", "note=checked", "--as", "demo"]
        if auto:
            self._story.say("in another terminal: celery -A example_project.app " + " ".join(words))
            self._story.show(self._here.run(*words))
            return
        self._story.say("answer here, or from another terminal:")
        self._story.show(f"cd {shlex.quote(str(ROOT))}")
        for name in ("SUPERVISE_DATABASE_URL", "CELERY_BROKER_URL"):
            self._story.show(f"export {name}={shlex.quote(self._here.env[name])}")
        self._story.show(shlex.join(self._here.celery(*words)))
        self._ask_here(question_id)

    def _ask_here(self, question_id: str) -> None:
        def closed() -> bool:
            return self._supervise.question(question_id).status != "pending"

        approved = asked_here("   Approve? [y/n] ", closed)
        if approved is not None:
            value = {"approved": approved, "note": "from the demo's terminal"}
            with suppress(QuestionClosed):  # both terminals at once: the first answer counts
                self._supervise.answer(question_id, value, actor="demo")
        answer = self._supervise.answers(self._supervise.question(question_id).job_id)["approve"]
        self._story.say(f"answered by {answer.actor}")

    def resume_and_kill(self, job_id: str) -> None:
        """A new worker goes on; it is killed in the middle; another one takes over."""
        if not self._approved(job_id):
            self._story.chapter("Refused: a worker lets the job end")
            with self._here.worker("worker-2"):
                self._in_state(job_id, State.COMPLETED)
            return
        self._story.chapter("A new worker goes on where the job stopped, and pays")
        worker = self._here.worker("worker-2")
        with worker:
            until("the payments begin", lambda: self._bank.count("payments") >= KILL_AFTER)
            kill_group(worker)
        self._last = self._bank.last_order()
        paid = self._bank.count("payments")
        self._story.say(f"kill -9: worker-2 and its children are gone, {paid} vendors are paid.")
        self._story.say(f"the last one it was paying: {self._last[1]}")
        state = self._job(job_id).state
        self._story.say(f"the row still says: {state}. Its lease ends within 6 s; then worker-3 goes on.")
        with self._here.worker("worker-3"):
            self._in_state(job_id, State.COMPLETED)
            until("Celery is told", lambda: self._job(job_id).settled_at)
        self._story.say(f"result: {pay_vendors.AsyncResult(job_id).get(timeout=10)}")

    def _approved(self, job_id: str) -> bool:
        answer: Any = self._supervise.value_of(self._supervise.answers(job_id)["approve"])
        return bool(answer["approved"])

    # --- the proofs ------------------------------------------------------------------------------------------

    def prove(self, job_id: str) -> int:
        """Count the effects; show the log; 0 if everything is as promised."""
        expected = len(VENDORS.read_text(encoding="utf-8").splitlines()) - 1 if self._approved(job_id) else 0
        paid, twice = self._bank.count("payments"), self._bank.paid_twice()
        self._story.chapter("The bank's books")
        self._story.say(f"{paid} vendors paid, {twice} of them twice.")
        ordered, once = self._last_counts()
        if self._last:
            self._story.say(f"{self._last[1]}, which was being paid: ordered {ordered} x with one key, paid {once} x.")
        self._story.chapter("The audit log of the job")
        self._story.show(self._here.run("supervise", "log", job_id))
        self._story.chapter("Everything is stopped; nothing is left behind")
        return 0 if (paid, twice, once) == (expected, 0, 1 if self._last else 0) else 1

    def _last_counts(self) -> tuple[int, int]:
        return self._bank.counts_of(self._last[0]) if self._last else (0, 0)

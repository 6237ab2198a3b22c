"""The command line on a real app and a real database. No worker: its part is done through the service."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from configparser import ConfigParser
from dataclasses import dataclass, replace
from datetime import timedelta
from decimal import Decimal
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

import pytest
from celery import Celery
from celery.bin.base import CLIContext
from click.testing import CliRunner, Result
from pydantic import BaseModel

from celery_supervise import Options, Remembered, SupervisedTask, invariants
from celery_supervise.ailments import SWEEPS
from celery_supervise.asking import Terms, compose
from celery_supervise.cli import VERBS, supervise
from celery_supervise.engine import create_engine
from celery_supervise.forms import build
from celery_supervise.holding import Holding
from celery_supervise.lifecycle import State
from celery_supervise.model import NewQuestion, NodeKind, Stored
from celery_supervise.outcomes import pack_result
from celery_supervise.runtime import runtime_of
from celery_supervise.values import IDENTITY, encode
from tests.celery.cli_app import make_app
from tests.postgres.shop import Shop, failure, retry, stored
from tests.servers import PASSWORD, RUNTIME, Database

ROOT = Path(__file__).resolve().parents[2]
AWAY = "postgresql://nobody@127.0.0.1:1/nothing"
HOUR = timedelta(hours=1)
ROOT_USER, DAEMON, NAMELESS = 0, 1, 4_000_000
"""Users: by the system's list, and one that is not in it."""
INSIDE_WORDS = re.compile("ticket|token|settl|outbox|reap|envelope", re.IGNORECASE)
# so that a server that has just started is old enough for a sweep to believe what it sees
SHORT_LEASE = {"supervise_lease_seconds": 0.3, "supervise_heartbeat_seconds": 0.05}


class Approval(BaseModel):
    """What the approver says."""

    approved: bool
    note: str = ""


@dataclass(frozen=True)
class Desk:
    """A person at a terminal, and the shop whose jobs they look at."""

    app: Celery
    shop: Shop

    def run(self, *words: str, code: int = 0, stdin: str | None = None) -> Result:
        """`celery -A proj supervise WORDS`, which must end with this exit code."""
        ran = invoke(self.app, *words, stdin=stdin)
        assert ran.exit_code == code, ran.output
        return ran

    def read(self, *words: str) -> Any:
        """What a verb prints for programs."""
        return json.loads(self.run(*words, "--json").stdout)

    # --- jobs of the app's task, in a state ----------------------------------------------------------------

    def pending(self, **options: Any) -> str:
        """A job that was submitted by the task's own `apply_async`."""
        return str(self.app.tasks["shop.pay"].apply_async((7,), **options).id)

    def running(self, **options: Any) -> Holding:
        """A job that a worker holds."""
        return self.shop.hold(self.pending(**options))

    def asked(self, question: NewQuestion | None = None, *, ttl: timedelta = HOUR, **options: Any) -> NewQuestion:
        """A job that waits for an answer."""
        holding = self.running(**options)
        question = question or ask(form=Approval)
        holding.ask(question, ttl=ttl)
        return question

    def job_of(self, question: NewQuestion) -> str:
        """The job that asked it."""
        return self.shop.job_of(question).id

    def paused(self) -> str:
        """A job that a person has paused."""
        holding = self.running()
        self.shop.supervisor.pause(holding.lease.job_id, actor="user:ann")
        holding.checkpoint("here", NodeKind.STEP, stored("1"))
        return holding.lease.job_id


def invoke(app: Celery, *words: str, stdin: str | None = None) -> Result:
    """Run a verb as celery would."""
    ran = CliRunner().invoke(
        supervise, words, obj=CLIContext(app=app, no_color=True, workdir=None), input=stdin, prog_name="supervise"
    )
    if ran.exception is not None and not isinstance(ran.exception, SystemExit):
        raise ran.exception
    return ran


def ask(
    key: str = "approve", prompt: str = "Pay 7?", *, show: Any = None, terms: Any = None, **form: Any
) -> NewQuestion:
    """A question as a body asks it."""
    given = Terms(**(terms or {}))
    return compose(key, prompt, form=build(**form), show=show, terms=given, codec=IDENTITY, limit=1 << 20)


def at_desk(database_url: str) -> Iterator[Desk]:
    """A terminal, on this database. What the verbs did must leave every rule unbroken."""
    app, engine = make_app(supervise_database_url=database_url, **SHORT_LEASE), create_engine(database_url)
    shop = Shop(engine)
    yield Desk(app, shop)
    runtime_of(app).engines.dispose()
    assert invariants.check(shop.door) == []
    engine.dispose()


@pytest.fixture
def desk(database_url: str) -> Iterator[Desk]:
    """A terminal, on this test's database."""
    yield from at_desk(database_url)


# --- jobs ------------------------------------------------------------------------------------------------


def test_jobs_lists_the_newest_first_and_says_why(desk: Desk) -> None:
    """Each job has a line with its state and what it waits for."""
    paused = desk.paused()
    question = desk.asked(supervise={"owner": "acme"})
    lines = desk.run("jobs").stdout.splitlines()
    assert lines[0].split() == ["JOB", "STATE", "TASK", "OWNER", "CREATED", "WHY"]
    assert lines[1].startswith(desk.job_of(question))
    assert lines[1].endswith("waits for an answer to approve")
    assert lines[2].startswith(paused)
    assert lines[2].endswith("paused")
    assert lines[3] == "2 jobs"


def test_jobs_counts_what_it_does_not_show(desk: Desk) -> None:
    """A list that is cut says of how many; programs get the exact counts."""
    for _ in range(3):
        desk.pending()
    assert desk.run("jobs", "--limit", "2").stdout.splitlines()[-1] == "2 of 3 jobs; --limit shows more"
    listed = desk.read("jobs", "--limit", "2")
    assert (listed["returned_count"], listed["total_count"], listed["withheld_count"]) == (2, 3, 1)
    assert len(listed["jobs"]) == 2


def test_a_question_is_open_no_longer_than_its_job(desk: Desk) -> None:
    """Where the job's deadline comes before the question's own time, that is what people are told."""
    question = desk.asked(ttl=7 * 24 * HOUR, supervise={"deadline": HOUR})
    for verb in (("questions",), ("show", desk.job_of(question))):
        assert re.search(r"approve: open until .* \(in 59 min", desk.run(*verb).stdout)
    (listed,) = desk.read("questions")["questions"]
    assert listed["open_until"] == desk.shop.job_of(question).deadline.isoformat()


def test_jobs_filters(desk: Desk) -> None:
    """State, task and owner each leave out the others; states can be combined."""
    pending = desk.pending(supervise={"owner": "acme"})
    running = desk.running().lease.job_id
    desk.paused()

    def ids(*filters: str) -> set[str]:
        return {job["id"] for job in desk.read("jobs", *filters)["jobs"]}

    assert ids("--state", "pending") == {pending}
    assert ids("--state", "pending", "--state", "running") == {pending, running}
    assert ids("--owner", "acme") == {pending}
    assert len(ids("--task", "shop.pay")) == 3
    assert ids("--task", "shop.other") == set()


def test_jobs_of_an_empty_shop(desk: Desk) -> None:
    """No jobs is an answer, not an error."""
    assert desk.run("jobs").stdout == "0 jobs\n"


def test_jobs_refuses_a_state_that_is_none(desk: Desk) -> None:
    """A misspelt state is wrong usage, and the right ones are named."""
    assert "parked" in desk.run("jobs", "--state", "paused", code=2).stderr


# --- show ------------------------------------------------------------------------------------------------


def test_show_tells_what_a_job_waits_for(desk: Desk, as_user: Any) -> None:
    """State, question with its form, progress, checkpoint, deadline, attempts, and how to answer."""
    as_user(DAEMON)
    holding = desk.running(supervise={"owner": "acme", "deadline": 20 * HOUR})
    holding.checkpoint("load", NodeKind.STEP, stored("1"))
    holding.progress(40, 1000, "vendors")
    holding.ask(question := ask(form=Approval, show={"total": "12.50"}), ttl=HOUR)
    shown = desk.run("show", holding.lease.job_id).stdout
    for part in (
        "owner       acme",
        "state       parked: waits for an answer to approve",
        "generation  3",
        "deadline    20",
        "progress    40 of 1,000: vendors",
        "checkpoint  load, ",
        f"question    {question.id} approve: open until ",
        "Pay 7?",
        'total  "12.50"',
        "approved  true or false",
        "note      text, optional",
        f"answer it: celery -A proj supervise answer {question.id} approved=true",
        "1. worker@test (process 4711)",
        "log         4 entries: celery -A proj supervise log ",
    ):
        assert part in shown
    assert not INSIDE_WORDS.search(shown)


@pytest.mark.parametrize("uid", [ROOT_USER, DAEMON, NAMELESS])
def test_the_command_that_show_gives_answers(desk: Desk, as_user: Any, uid: int) -> None:
    """It works as it is printed: with `--as` where the log would not say who answered."""
    as_user(uid)
    question = desk.asked()
    shown = desk.run("show", desk.job_of(question)).stdout
    example = re.search(r"answer it: celery -A proj supervise (.+)", shown)
    assert example
    desk.run(*shlex.split(example[1]))
    assert desk.shop.job_of(question).stop_reason == "answered:approve"
    assert ("--as" in example[1]) is (uid != DAEMON)


def test_show_says_when_a_failed_job_starts_again(desk: Desk) -> None:
    """A retry that waits for its time is told with that time and the error before."""
    holding = desk.running()
    holding.retry(retry(5 * HOUR), failure("bank down"))
    shown = desk.run("show", holding.lease.job_id).stdout
    assert re.search(r"state +pending: starts again at 20\S+ \S+Z \(in 4 h 59 min\)", shown)
    assert "failed, to be tried again: shop.Broken: bank down" in shown


def test_show_tells_that_a_worker_was_lost(desk: Desk) -> None:
    """An attempt whose lease ended is told as a lost worker, and the job starts again."""
    job_id = desk.pending()
    Shop(desk.shop.engine, lease=timedelta(milliseconds=1)).hold(job_id)
    expire_lease(desk, job_id)
    desk.run("sweep")
    shown = desk.run("show", job_id).stdout
    assert "worker lost: its lease ended" in shown
    assert "waits for a worker to start it again" in shown


@pytest.mark.parametrize("value", [False, 0, "", [], {}, None])
def test_s13_an_empty_answer_is_shown(desk: Desk, value: Any) -> None:
    """False, zero, an empty text, list, object and null are answers: given, shown, and told to programs."""
    question = desk.asked(ask(schema={"const": value}))
    desk.run("answer", str(question.id), "--json", json.dumps(value), "--as", "ann")
    text = desk.run("show", desk.job_of(question)).stdout
    assert f"{question.id} approve: {json.dumps(value)}, by cli:ann at " in text
    told = desk.read("show", desk.job_of(question))["questions"][0]
    assert (told["status"], told["answer"]) == ("answered", value)


def test_show_prints_a_result(desk: Desk) -> None:
    """What a completed job returned is shown, for programs as JSON; until Celery has been told, with that remark."""
    holding = desk.running()
    holding.complete(pack_result(runtime_of(desk.app), {"paid": 7}))
    shown = desk.run("show", holding.lease.job_id).stdout
    assert 'result      {"paid": 7}\n' in shown
    assert "have not been told yet" in shown
    assert desk.read("show", holding.lease.job_id)["result"] == {"paid": 7}


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("", '""'),
        (Decimal("1.50"), "Decimal('1.50')"),
        (float("nan"), "nan"),
        ("\x1b[2J" * 200, "(--json shows all)"),
    ],
)
def test_show_prints_any_result(desk: Desk, value: Any, shown: str) -> None:
    """What JSON does not know is shown as Python prints it, what is long is cut with a mark."""
    holding = desk.running()
    holding.complete(pack_result(runtime_of(desk.app), value))
    text = re.search(r"^result +(.*)$", desk.run("show", holding.lease.job_id).stdout, re.MULTILINE)
    assert text
    assert shown in text[1]
    assert len(text[1]) < 600
    assert desk.read("show", holding.lease.job_id)["result"] in (value, repr(value))


def test_show_does_not_unpickle(desk: Desk) -> None:
    """A result that only a worker may read is not read here, and that is said."""
    holding = desk.running()
    holding.complete(encode("paid", limit=99))
    assert "cannot be shown here: it is json+kombu" in desk.run("show", holding.lease.job_id).stdout
    assert "only a worker" in desk.read("show", holding.lease.job_id)["result_unreadable"]


def test_show_leaves_out_no_attempt_silently(desk: Desk) -> None:
    """Of many attempts the last are shown and the others counted; programs get all."""
    job_id = desk.pending()
    for _ in range(12):
        desk.shop.hold(job_id).hand_over()
    shown = desk.run("show", job_id).stdout
    assert "attempts    2 earlier ones not shown; --json shows all\n            3. worker@test" in shown
    assert [attempt["number"] for attempt in desk.read("show", job_id)["attempts_made"]] == list(range(1, 13))


def test_show_of_a_question_that_is_closed(desk: Desk) -> None:
    """A question that nobody can answer any more says so, and offers no command."""
    question = desk.asked(ask(schema={"type": "boolean"}, show=["a", "b"]))
    desk.run("cancel", desk.job_of(question), "--as", "ann")
    shown = desk.run("show", desk.job_of(question)).stdout
    assert f'{question.id} approve: closed\n              Pay 7?\n              ["a", "b"]\n' in shown
    assert "answer it" not in shown


def test_a_question_that_cannot_be_read_is_listed(desk: Desk) -> None:
    """A question in an encoding of another version is shown with what is wrong with it, not left out."""
    desk.asked(replace(ask(form=Approval), content=Stored(b"?", "of-tomorrow")))
    text = desk.run("questions").stdout
    assert "cannot be read back" in text
    assert text.endswith("1 open question\n")


def test_show_finds_a_job_by_the_beginning_of_its_id(desk: Desk) -> None:
    """A beginning that only one job has is enough; else the candidates are named, and the exit code is 2."""
    one, other = desk.pending(task_id="3f2a-one"), desk.pending(task_id="3f2a-other")
    assert desk.read("show", "3f2a-on")["id"] == one
    refused = desk.run("show", "3f2a", code=2).stderr
    assert one in refused
    assert other in refused
    desk.pending(task_id="3f2a-one-more")
    assert desk.read("show", one)["id"] == one


def test_show_of_a_job_that_is_not_there(desk: Desk) -> None:
    """An unknown id is refused in one line."""
    refused = desk.run("show", "nope", code=1)
    assert (refused.stdout, refused.stderr) == ("", "Error: there is no job 'nope'\n")


def test_s87_texts_of_strangers_cannot_act_on_the_terminal(desk: Desk) -> None:
    """Escapes in ids, owners, questions and progress show as text in every verb; so do hidden characters."""
    evil = "\x1b[2J\x07\u202e\u200b<b>"
    holding = desk.running(task_id=f"id{evil}", supervise={"owner": f"o{evil}"})
    holding.progress(1, None, f"m{evil}")
    holding.ask(ask(f"k{evil}", f"p{evil}\nsecond", schema={"const": evil}, show={evil: [evil]}), ttl=HOUR)
    for words in (["jobs"], ["show", "id"], ["log", "id"], ["questions"], ["jobs", "--json"], ["show", "id", "--json"]):
        printed = desk.run(*words).stdout
        assert "[2J" in printed
        assert printed.replace("\n", "").isprintable()
        assert not set("\x1b\x07\u202e\u200b") & set(printed)


def test_s66_an_id_with_nul_is_wrong_usage(desk: Desk) -> None:
    """What no database can hold is refused before it is asked for."""
    assert "NUL" in desk.run("show", "a\0b", code=2).stderr


def test_programs_are_told_nothing_that_only_the_code_knows(desk: Desk) -> None:
    """The JSON of a job has its generation, and none of the words of the code."""
    told = desk.read("show", desk.job_of(desk.asked()))
    assert told["generation"] == 3
    assert not INSIDE_WORDS.search(json.dumps(told))


# --- log -------------------------------------------------------------------------------------------------


def test_log_discloses_what_it_withholds(desk: Desk) -> None:
    """The newest page in order, with exact counts of what is not in it; all of it on request."""
    job_id = desk.paused()
    page = desk.read("log", job_id, "--limit", "2")
    assert {name: page[name] for name in page if name != "entries"} == {
        "returned_count": 2,
        "total_count": 5,
        "withheld_count": 3,
        "truncated": True,
    }
    assert [entry["sequence_num"] for entry in page["entries"]] == [4, 5]
    assert set(page["entries"][0]) == {"job_id", "sequence_num", "event", "actor", "at", "data"}
    assert desk.run("log", job_id, "--limit", "2").stdout.splitlines()[-1] == (
        "2 of 5 entries; 3 withheld: --before 4 shows those before, --all shows the whole log"
    )
    whole = desk.read("log", job_id, "--all")
    assert [entry["sequence_num"] for entry in whole["entries"]] == [1, 2, 3, 4, 5]
    assert (whole["truncated"], whole["withheld_count"]) == (False, 0)
    assert desk.run("log", job_id, "--all").stdout.splitlines()[-1] == "5 entries"


def test_log_goes_back_page_by_page(desk: Desk) -> None:
    """`--before` gives the page before a number; with `--all` it makes no sense."""
    job_id = desk.paused()
    page = desk.read("log", job_id, "--before", "4", "--limit", "2")
    assert [entry["sequence_num"] for entry in page["entries"]] == [2, 3]
    desk.run("log", job_id, "--before", "4", "--all", code=2)


def test_log_tells_all_fields(desk: Desk) -> None:
    """A line has number, time to the microsecond, event, actor and every detail."""
    job_id = desk.paused()
    line = desk.run("log", job_id, "--all").stdout.splitlines()[3]
    assert re.fullmatch(
        r"3  \d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{6}Z  pause requested  user:ann +state=running generation=3", line
    ), line


def test_a_detail_cannot_pass_for_another(desk: Desk) -> None:
    """A text with spaces or signs in it is quoted in the log."""
    job_id = desk.pending()
    desk.run("cancel", job_id, "--why", "x state=completed", "--as", "ann")
    assert 'why="x state=completed"' in desk.run("log", job_id).stdout


# --- questions and answers -------------------------------------------------------------------------------


def test_questions_is_an_inbox(desk: Desk) -> None:
    """What waits for an answer, oldest first, with its form and job; what is left out is counted."""
    first = desk.asked(supervise={"owner": "acme"})
    second = desk.asked(ask(choices=["skip", "stop"], prompt="Go on?"))
    text = desk.run("questions").stdout
    assert text.index(str(first.id)) < text.index(str(second.id))
    assert "answer: skip or stop" in text
    assert f"job         {desk.job_of(first)} (shop.pay)" in text
    assert text.endswith("2 open questions\n")
    assert desk.run("questions", "--limit", "1").stdout.endswith("1 of 2 open questions; --limit shows more\n")
    assert desk.read("questions", "--owner", "acme")["total_count"] == 1
    told = desk.read("questions")["questions"][0]
    assert told["content"] == {"prompt": "Pay 7?", "show": None}
    assert "answer" not in told


def test_questions_of_one_job_include_the_answered(desk: Desk) -> None:
    """`--job` shows all that the job has asked."""
    question = desk.asked()
    desk.run("answer", str(question.id), "approved=true", "--as", "ann")
    assert desk.run("questions").stdout == "0 open questions\n"
    shown = desk.run("questions", "--job", desk.job_of(question)).stdout
    assert '{"approved": true}, by cli:ann' in shown
    assert shown.endswith("1 question\n")


@pytest.mark.parametrize(
    ("words", "stdin"),
    [
        (["approved=true", "note=all fine"], None),
        (["--json", '{"approved": true, "note": "all fine"}'], None),
        (["--json", "-"], '{"approved": true, "note": "all fine"}'),
    ],
)
def test_answer_gives_the_value_typed_by_the_form(desk: Desk, words: list[str], stdin: str | None) -> None:
    """Words, JSON and JSON from stdin each give the same answer, under the name of who gave it."""
    question = desk.asked()
    ran = desk.run("answer", str(question.id)[:8], *words, "--as", "ann", stdin=stdin)
    assert "the job goes on as soon as a worker takes it" in ran.stdout
    told = desk.read("show", desk.job_of(question))["questions"][0]
    assert told["answer"] == {"approved": True, "note": "all fine"}
    assert told["answered_by"] == "cli:ann"


def test_json_in_json_out(desk: Desk) -> None:
    """An answer given as JSON is confirmed as JSON, with the generation to go on with."""
    question = desk.asked()
    ran = desk.run("answer", str(question.id), "--json", '{"approved": false}', "--as", "ann")
    told = json.loads(ran.stdout)
    assert (told["state"], told["stop_reason"], told["generation"]) == ("parked", "answered:approve", 4)


def test_answer_names_each_field_that_is_wrong(desk: Desk) -> None:
    """A refused answer names every field, changes nothing, and the exit code is 1."""
    question = desk.asked()
    refused = desk.run("answer", str(question.id), "approved=maybe", "colour=red", "--as", "ann", code=1)
    assert refused.stderr.splitlines() == [
        "Error: the answer was not accepted:",
        "  approved must be boolean",
        "  colour is not a field of this form",
    ]
    assert desk.shop.job_of(question).log_seq == 3
    refused = desk.run("answer", str(question.id), "--json", '{"approved": 1}', "--as", "ann", code=1)
    told = json.loads(refused.stderr)["error"]
    assert (told["type"], told["errors"]) == ("InvalidAnswer", {"approved": ["must be boolean"]})


def test_answer_of_a_single_value_that_is_wrong(desk: Desk) -> None:
    """Where there is no field to name, the whole is meant."""
    question = desk.asked(ask(choices=["skip", "stop"]))
    refused = desk.run("answer", str(question.id), "go", "--as", "ann", code=1)
    assert "  it must be one of 'skip', 'stop'\n" in refused.stderr


def test_a_second_answer_is_told_who_was_first(desk: Desk) -> None:
    """The loser learns who answered, when, and where the job is; nothing is overwritten."""
    question = desk.asked()
    desk.run("answer", str(question.id), "approved=true", "--as", "ann")
    refused = desk.run("answer", str(question.id), "approved=false", "--as", "eve", code=1)
    assert re.fullmatch(
        r"Error: already answered by cli:ann, at \d{4}-\d\d-\d\d \d\d:\d\d:\d\dZ; the job is parked now\n",
        refused.stderr,
    )
    assert desk.read("show", desk.job_of(question))["questions"][0]["answer"]["approved"] is True


def test_answer_refuses_what_has_changed(desk: Desk) -> None:
    """An old generation and another digest are refused: the person saw something else."""
    question = desk.asked()
    words = ["answer", str(question.id), "approved=true", "--as", "ann"]
    assert "generation 3, not 2" in desk.run(*words, "--expected-generation", "2", code=1).stderr
    assert "not the one that was shown" in desk.run(*words, "--seen", "other", code=1).stderr
    desk.run(*words, "--expected-generation", "3", "--seen", question.digest)


@pytest.mark.parametrize("words", [[], ["approved=true", "--json", "{}"]])
def test_answer_is_given_in_one_way(desk: Desk, words: list[str]) -> None:
    """No answer, or two, is wrong usage."""
    question = desk.asked()
    desk.run("answer", str(question.id), *words, "--as", "ann", code=2)


@pytest.mark.parametrize("text", ["nope", "00000000", "7c1e-not-hex"])
def test_answer_to_a_question_that_is_not_there(desk: Desk, text: str) -> None:
    """An unknown question is refused in one line."""
    assert desk.run("answer", text, "true", "--as", "ann", code=1).stderr == f"Error: there is no question {text!r}\n"


def test_answer_names_the_candidates_of_a_short_id(desk: Desk) -> None:
    """A beginning that several questions have is wrong usage, and they are named."""
    found: dict[str, list[NewQuestion]] = {}
    while not (twins := next((same for same in found.values() if len(same) > 1), None)):
        question = desk.asked()
        found.setdefault(str(question.id)[0], []).append(question)
    refused = desk.run("answer", str(twins[0].id)[0], "approved=true", "--as", "ann", code=2).stderr
    assert all(str(question.id) in refused for question in twins)


def test_an_answer_is_kept_while_the_broker_is_away(database_url: str, desk: Desk) -> None:
    """The answer is accepted, and the person is told that the job goes on later."""
    question = desk.asked()
    app = make_app(supervise_database_url=database_url, broker_url="redis://127.0.0.1:1/0")
    ran = invoke(app, "answer", str(question.id), "approved=true", "--as", "ann")
    runtime_of(app).engines.dispose()
    assert ran.exit_code == 0, ran.output
    assert "Note: the broker does not answer just now; the job goes on as soon as it does" in ran.stderr
    assert desk.shop.job_of(question).stop_reason == "answered:approve"


# --- who ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "words",
    [["answer", "7c1e", "true"], ["pause", "x"], ["resume", "x"], ["cancel", "x"], ["extend", "x", "--by", "1h"]],
)
@pytest.mark.parametrize("uid", [ROOT_USER, NAMELESS])
def test_root_must_say_who_they_are(as_user: Any, words: list[str], uid: int) -> None:
    """Root, and a user without a name, are nobody in a log: each change needs `--as`, before anything is read."""
    as_user(uid)
    refused = invoke(make_app(supervise_database_url=AWAY), *words)
    assert refused.exit_code == 2
    assert "--as USER" in refused.stderr


def test_a_user_is_named_by_the_system(as_user: Any, desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """The actor is the process's own user, whatever LOGNAME says."""
    as_user(DAEMON)
    monkeypatch.setenv("LOGNAME", "eve")
    desk.run("cancel", job_id := desk.pending())
    actors = {entry["event"]: entry["actor"] for entry in desk.read("log", job_id)["entries"]}
    assert actors["cancelled"] == "cli:daemon"


@pytest.mark.parametrize("name", ["", " ", "x" * 256, "half\ud800"])
def test_a_name_that_no_log_can_hold(desk: Desk, name: str) -> None:
    """A blank, overlong or broken name is wrong usage."""
    desk.run("cancel", desk.pending(), "--as", name, code=2)


def test_s21_who_may_not_answer_is_told_so(desk: Desk) -> None:
    """Somebody's own job, or a question to others: refused by this way as by any; the exit code is 1."""
    own = desk.asked(ask(choices=["yes", "no"]), supervise={"owner": "ann"})
    others = desk.asked(ask(choices=["yes", "no"], terms={"to": "bob"}))
    refused = desk.run("answer", str(own.id), "yes", "--as", "ann", code=1).stderr
    assert refused == "Error: cli:ann owns the job, and may not answer its question\n"
    refused = desk.run("answer", str(others.id), "--json", '"yes"', "--as", "ann", code=1).stderr
    assert json.loads(refused)["error"]["code"] == "not_assigned"
    assert desk.read("questions")["total_count"] == 2


def test_the_inbox_says_who_may_answer(desk: Desk) -> None:
    """Anybody, the named, and not the owner; once it is answered nobody asks any more."""
    question = desk.asked()
    assert "  may answer  anybody\n" in desk.run("questions").stdout
    desk.run("answer", str(question.id), "approved=true", "--as", "ann")
    desk.asked(ask(choices=["yes", "no"], terms={"to": "group:finance"}), supervise={"owner": "acme"})
    assert "  may answer  group:finance, but not acme, whose job it is\n" in desk.run("questions").stdout
    assert "may answer" not in desk.run("questions", "--job", desk.job_of(question)).stdout


def test_the_id_of_a_job_is_no_question_s(desk: Desk) -> None:
    """Who gives a job's id is told so, and which question it asks just now, if any; of nothing, as ever."""
    question = desk.asked()
    job_id = desk.job_of(question)
    for verb in (("answer", job_id, "approved=true"), ("withdraw", job_id[:20], "--why", "no")):
        said = desk.run(*verb, "--as", "ann", code=1).stderr
        assert said.endswith(f": that is the id of a job; its open question is {question.id}\n")
    other = desk.pending(task_id="my job")
    assert "it has no open question" in desk.run("answer", other, "yes", "--as", "ann", code=1).stderr


def test_several_people_agree(desk: Desk) -> None:
    """Who has voted, and what; how many must agree; the last vote that is needed is told as the answer."""
    question = desk.asked(ask(choices=["yes", "no"], terms={"approvals": 2}))
    head = str(question.id)[:8]
    assert "  must agree  2; nobody has voted\n" in desk.run("questions").stdout
    assert desk.run("answer", head, "no", "--as", "ann").stdout == "voted: your vote counts; 1 voted, 2 must agree\n"
    assert "this very vote of yours counts already" in desk.run("answer", head, "no", "--as", "ann").stdout
    told = json.loads(desk.run("answer", head, "--json", '"yes"', "--as", "bob").stdout)
    assert (told["said"], told["changed"]) == ("your vote counts; 2 voted differently, 2 must agree", True)
    assert '  must agree  2; 2 voted (ann: "no", bob: "yes")\n' in desk.run("questions").stdout
    assert desk.run("answer", head, "yes", "--as", "ann").stdout.startswith("answered: the job goes on")
    shown = desk.read("show", desk.job_of(question))["questions"][0]
    assert (shown["answer"], shown["approvals"], shown["voted"]) == ("yes", 2, ["bob", "ann"])
    assert [(one["person"], one["value"]) for one in shown["votes"]] == [("bob", "yes"), ("ann", "yes")]


def test_a_question_is_given_to_others(desk: Desk) -> None:
    """By the beginning of its id; to the same again is no change; never to oneself, nor to an unknown group."""
    question = desk.asked(ask(choices=["yes", "no"], terms={"to": "bob"}))
    head = str(question.id)[:8]
    ran = desk.run("reassign", head, "--to", "ann", "--to", "bob", "--as", "bob", "--why", "two eyes")
    assert ran.stdout == f"{question.id}: now for ann, bob (generation 4)\n"
    assert "already for ann, bob" in desk.run("reassign", head, "--to", "ann", "--to", "bob", "--as", "carl").stdout
    refused = desk.run("reassign", head, "--to", "carl", "--as", "carl", code=1).stderr
    assert refused == "Error: cli:carl may not answer this question: somebody else must give it to them\n"
    desk.run("reassign", head, "--as", "carl", code=2)
    many = desk.run("reassign", head, "--to", "dora, emil", "--as", "carl", code=2).stderr
    assert "one name each: --to dora --to emil" in many
    assert "supervise_groups is not set" in desk.run("reassign", head, "--to", "group:x", "--as", "bob", code=2).stderr
    told = json.loads(desk.run("reassign", head, "--to", "dora", "--as", "ann", "--json").stdout)
    assert (told["generation"], told["said"]) == (5, "now for dora")


def test_a_question_is_taken_back(desk: Desk) -> None:
    """The job goes on, or does once it is resumed; `show` says that it asks anew; a second time is refused."""
    question, paused = desk.asked(), desk.asked()
    ran = desk.run("withdraw", str(question.id), "--as", "ann", "--why", "wrong")
    assert ran.stdout == (
        f"{question.id}: taken back; the job asks anew: it goes on as soon as a worker takes it (generation 4)\n"
    )
    assert "approve is taken back, to be asked anew, waits for a worker" in desk.run("jobs").stdout
    assert "the question was withdrawn" in desk.run("withdraw", str(question.id), "--as", "ann", code=1).stderr
    desk.run("pause", desk.job_of(paused), "--as", "ann")
    told = json.loads(desk.run("withdraw", str(paused.id), "--as", "ann", "--json").stdout)
    assert told["said"].endswith("it will not start until resumed")


# --- pause, resume, cancel ---------------------------------------------------------------------------------


def test_pause_is_a_request(desk: Desk) -> None:
    """A running job pauses after its step, asking twice changes nothing, a waiting one does not start."""
    running = desk.running().lease.job_id
    assert (
        desk.run("pause", running, "--as", "ann").stdout
        == f"{running}: pausing after the current step (generation 3)\n"
    )
    assert "already pausing" in desk.run("pause", running, "--as", "ann").stdout
    assert "will not start until resumed" in desk.run("pause", desk.pending(), "--as", "ann").stdout


def test_resume_is_won_once(desk: Desk) -> None:
    """The first resume lets the job go on, the second is refused with the reason."""
    paused = desk.paused()
    assert "goes on as soon as a worker takes it" in desk.run("resume", paused, "--as", "ann").stdout
    refused = desk.run("resume", paused, "--as", "bob", code=1).stderr
    assert refused == "Error: the job was already told to go on and waits for a worker\n"


def test_resume_takes_a_pause_back(desk: Desk) -> None:
    """A pause that a worker has not seen yet is withdrawn."""
    running = desk.running().lease.job_id
    desk.run("pause", running, "--as", "ann")
    assert "the pause is taken back" in desk.run("resume", running, "--as", "ann").stdout


def test_an_answer_to_a_paused_job_waits(desk: Desk) -> None:
    """Who answers while a pause is asked for is told that the job does not go on by that."""
    question = desk.asked()
    desk.run("pause", desk.job_of(question), "--as", "ann")
    ran = desk.run("answer", str(question.id), "approved=true", "--as", "ann")
    assert ran.stdout == "answered: it will not start until resumed\n"


@pytest.mark.parametrize("verb", ["pause", "resume", "cancel"])
@pytest.mark.parametrize("state", [State.COMPLETED, State.FAILED, State.CANCELLED, State.EXPIRED])
def test_s42_a_job_that_has_ended_stays_so(desk: Desk, verb: str, state: State) -> None:
    """Each request to an ended job is refused with its state, the exit code is 1, generation and log stay."""
    job = desk.shop.ended(state)
    refused = desk.run(verb, job.id, "--as", "ann", "--json", code=1)
    told = json.loads(refused.stderr)["error"]
    assert (told["code"], told["state"]) == ("already_final", state)
    assert desk.shop.job(job.id) == job


def test_cancel_is_told_as_what_it_is(desk: Desk) -> None:
    """A waiting job is cancelled at once, a running one at its next step; an old generation is refused."""
    pending, running = desk.pending(), desk.running().lease.job_id
    assert "cancelled (generation 2)" in desk.run("cancel", pending, "--as", "ann", "--why", "twice").stdout
    assert re.search(r"^state +cancelled: by cli:ann \(twice\)$", desk.run("show", pending).stdout, re.MULTILINE)
    assert (
        "generation 2, not 1" in desk.run("cancel", running, "--as", "ann", "--expected-generation", "1", code=1).stderr
    )
    told = json.loads(desk.run("cancel", running, "--as", "ann", "--expected-generation", "2", "--json").stdout)
    assert (told["state"], told["generation"]) == ("running", 3)
    assert told["said"].startswith("cancelling: its worker stops at its next step")


# --- sweep -------------------------------------------------------------------------------------------------


def expire_lease(desk: Desk, job_id: str) -> None:
    """Wait until the lease of the job's attempt is over, by the database's clock."""
    with desk.shop.engine.connect() as connection:
        connection.exec_driver_sql(
            "SELECT pg_sleep(greatest(0, extract(epoch FROM max(lease_until) - clock_timestamp()) + 0.001))"
            f" FROM supervise.attempts WHERE job_id = '{job_id}'"
        )


def test_sweep_says_what_it_did(desk: Desk) -> None:
    """Overdue questions expire, jobs that are due are sent, ends are told: in numbers and ids."""
    question = desk.asked(ttl=timedelta(microseconds=1))
    told = json.loads(desk.run("sweep", "--json").stdout)
    assert told["sweeps"][0] == {"name": "expiry", "ran": True, "held": None, "jobs": [desk.job_of(question)]}
    assert told["told"] == 1
    assert desk.shop.job_of(question).state is State.EXPIRED
    assert desk.run("sweep").stdout.splitlines()[0] == "time over           0 jobs"


def test_sweep_says_that_it_holds_back(database_url: str) -> None:
    """A sweep that mistrusts what it sees says so, and why, and for how long."""
    app = make_app(supervise_database_url=database_url, supervise_lease_seconds=86_400)
    ran = invoke(app, "sweep")
    runtime_of(app).engines.dispose()
    assert ran.exit_code == 0
    assert "time over           holds back, for 1 d at most: Postgres has just started" in ran.stdout
    assert ran.stderr == ""


# --- migrate -----------------------------------------------------------------------------------------------


def test_migrate_makes_the_tables_and_lets_the_role_use_them(empty_database: Database) -> None:
    """Owner's URL and the app's role are given once; then the app works, and again changes nothing."""
    app = make_app(supervise_database_url=empty_database.url)
    refused = invoke(app, "jobs")
    assert refused.exit_code == 1
    assert "supervise migrate" in refused.stderr
    for _ in range(2):
        ran = invoke(app, "migrate", "--url", empty_database.owner_url, "--runtime-role", RUNTIME)
        assert ran.exit_code == 0, ran.output
        assert re.fullmatch(
            rf"Schema supervise in database \w+ is at revision \d+, and role {RUNTIME} may use it\.\n", ran.stdout
        )
    assert invoke(app, "jobs").stdout == "0 jobs\n"
    runtime_of(app).engines.dispose()


def test_migrate_uses_the_settings(empty_database: Database) -> None:
    """Without options the app's own database and schema are meant."""
    app = make_app(supervise_database_url=empty_database.owner_url, supervise_schema="jobs_of_ours")
    assert invoke(app, "migrate").stdout.startswith("Schema jobs_of_ours in database ")
    assert invoke(app, "jobs").stdout == "0 jobs\n"
    runtime_of(app).engines.dispose()


def test_migrate_prints_the_statements() -> None:
    """`--sql` needs no database and no setting."""
    printed = invoke(make_app(), "migrate", "--sql", "--schema", "elsewhere", "--runtime-role", "shop_app")
    assert printed.exit_code == 0, printed.output
    assert "CREATE TABLE elsewhere.jobs " in printed.stdout.replace('"', "")
    assert "TO shop_app;" in printed.stdout.replace('"', "")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "supervise_database_url: is not set"),
        (["--url", "mysql://x"], "mysql:// cannot be used"),
        (["--url", "postgresql://x", "--schema", "pg_x"], "'pg_x' cannot be used"),
    ],
)
def test_migrate_refuses_what_it_cannot_use(words: list[str], said: str) -> None:
    """A missing or unusable setting is named, in one line, and the exit code is 2."""
    refused = invoke(make_app(), "migrate", *words)
    assert refused.exit_code == 2
    assert said in refused.stderr
    assert refused.stderr.count("\n") == 1


# --- what is away or not set -------------------------------------------------------------------------------

READING = (["jobs"], ["show", "x"], ["log", "x"], ["questions"], ["answer", "7c1e", "true", "--as", "ann"], ["sweep"])
HANDING = (["reassign", "7c1e", "--to", "bob", "--as", "ann"], ["withdraw", "7c1e", "--as", "ann"])


@pytest.mark.parametrize("words", [*READING, *HANDING, ["cancel", "x", "--as", "ann"], ["migrate"]])
def test_a_database_that_is_away(words: list[str]) -> None:
    """Every verb that needs it says in one line that it is away and what to do; the exit code is 3."""
    refused = invoke(make_app(supervise_database_url=AWAY), *words)
    assert refused.exit_code == 3
    assert refused.stdout == ""
    assert "See that it runs where supervise_database_url says" in refused.stderr
    assert refused.stderr.count("\n") == 1


@pytest.mark.parametrize("verb", [["jobs"], ["migrate"]])
def test_a_database_that_there_is_not(verb: list[str], database_url: str) -> None:
    """A wrong name is not told as a server that is away, nor a wrong password."""
    url, wrong = database_url + "_gone", database_url.replace(PASSWORD, "wrong")
    refused = invoke(make_app(supervise_database_url=url), *verb)
    assert (refused.exit_code, refused.stderr.count("\n")) == (3, 1)
    assert refused.stderr.startswith("Error: Postgres has no such database (")
    assert invoke(make_app(supervise_database_url=wrong), *verb).stderr.startswith(
        "Error: Postgres refused the login ("
    )


def test_programs_are_told_what_is_away() -> None:
    """With `--json` the error is JSON too."""
    refused = invoke(make_app(supervise_database_url=AWAY), "jobs", "--json")
    error = json.loads(refused.stderr)["error"]
    assert (error["type"], error["code"]) == ("DatabaseUnavailable", "unreachable")


@pytest.mark.parametrize("words", READING)
def test_a_setting_that_is_missing(words: list[str]) -> None:
    """The verb that needs it names it; the exit code is 2."""
    refused = invoke(make_app(), *words)
    assert refused.exit_code == 2
    assert refused.stderr == "Error: supervise_database_url: is not set; give the URL of a Postgres database\n"


def test_what_postgres_refuses_is_a_line(desk: Desk, database: Database) -> None:
    """A role without rights is told what Postgres said, and how to see why."""
    owner = create_engine(database.owner_url)
    with owner.begin() as connection:
        connection.exec_driver_sql(f"REVOKE SELECT ON supervise.jobs FROM {RUNTIME}")
    refused = desk.run("jobs", code=1).stderr
    with owner.begin() as connection:
        connection.exec_driver_sql(f"GRANT SELECT ON supervise.jobs TO {RUNTIME}")
    owner.dispose()
    assert refused == (
        "Error: Postgres refused: permission denied for table jobs. To see why: celery -A proj supervise doctor\n"
    )


# --- doctor ------------------------------------------------------------------------------------------------


def test_doctor_of_a_shop_that_is_well(desk: Desk) -> None:
    """Nothing to complain of is exit code 0; each check has its line."""
    desk.run("sweep")
    text = desk.run("doctor").stdout
    assert not INSIDE_WORDS.search(text)
    assert re.search(r"^ok +rules +all \d+ hold$", text, re.MULTILINE)
    assert text.endswith("0 errors, 0 warnings\n")
    assert desk.read("doctor")["healthy"] is True


def test_doctor_of_a_shop_that_is_not(desk: Desk) -> None:
    """An error is exit code 1, and says what it means and what helps."""
    desk.pending()
    text = desk.run("doctor", code=1).stdout
    assert f"error       sweeps       never ran: {', '.join(SWEEPS.values())}\n" in text
    assert "no lost worker is noticed" in text
    assert "celery -A proj supervise sweep" in text
    assert json.loads(desk.run("doctor", "--json", code=1).stdout)["healthy"] is False


def test_doctor_without_a_database() -> None:
    """A database that is away is exit code 3; what depends on it is said not to be checked."""
    ran = invoke(make_app(supervise_database_url=AWAY), "doctor")
    assert ran.exit_code == 3
    assert "not checked schema       needs: database\n" in ran.stdout


def test_doctor_without_a_setting() -> None:
    """A setting that is missing or cannot work is a finding, not a failure of doctor."""
    for app in (make_app(), make_app(supervise_database_url=AWAY, supervise_lease_seconds=-1)):
        ran = invoke(app, "doctor")
        assert ran.exit_code == 1
        assert ran.stdout.startswith("error       settings     supervise_")
        assert ran.stdout.endswith("1 error, 0 warnings\n")


# --- the plug-in -------------------------------------------------------------------------------------------


@pytest.fixture
def environment(tmp_path: Path) -> Mapping[str, str]:
    """An environment in which celery finds our command: from a bare checkout its entry point is laid beside it."""
    paths = [str(ROOT)]
    try:
        distribution("celery-supervise")
    except PackageNotFoundError:
        declared = ConfigParser(interpolation=None)
        declared.read(ROOT / "setup.cfg")
        info = tmp_path / "celery_supervise-0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: celery-supervise\nVersion: 0\n")
        points = declared["options.entry_points"]["celery.commands"].strip()
        (info / "entry_points.txt").write_text(f"[celery.commands]\n{points}\n")
        paths.append(str(tmp_path))
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "PYTHONIOENCODING": "ascii"}


def celery(environment: Mapping[str, str], *words: str) -> subprocess.CompletedProcess[str]:
    """Run celery as a process."""
    command = [sys.executable, "-m", "celery", "-A", "tests.celery.cli_app", *words]
    return subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)


def test_celery_finds_the_verbs(environment: Mapping[str, str]) -> None:
    """`celery supervise --help` lists each verb; no setting is needed for that."""
    ran = celery(environment, "supervise", "--help")
    assert ran.returncode == 0, ran.stderr
    assert [line.split()[0] for line in ran.stdout.split("Commands:\n")[1].splitlines() if line.strip()][
        : len(VERBS)
    ] == list(VERBS)


def test_celery_runs_a_verb(environment: Mapping[str, str], desk: Desk, database_url: str) -> None:
    """A verb runs on the app that celery was given, and its hints name that app; a poor terminal is no error."""
    question = desk.asked(ask(prompt="Zürich…?", form=Approval))
    ran = celery({**environment, "TEST_DATABASE_URL": database_url}, "supervise", "show", desk.job_of(question))
    assert ran.returncode == 0, ran.stderr
    assert "Z\\xfcrich\\u2026?" in ran.stdout
    assert re.search(rf"celery -A tests.celery.cli_app supervise answer (--as USER )?{question.id}", ran.stdout)


@pytest.mark.parametrize("verb", ["jobs", "doctor"])
def test_no_app_is_named(environment: Mapping[str, str], verb: str) -> None:
    """Without -A there is Celery's own app, which has no settings: the person is told what is missing."""
    words = [sys.executable, "-m", "celery", "supervise", verb]
    around = {name: value for name, value in environment.items() if name != "CELERY_APP"}
    ran = subprocess.run(words, env=around, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode == 2
    assert f"No app was named: -A is missing, as in: celery -A proj supervise {verb}\n" in ran.stderr


def test_celery_passes_on_our_exit_codes(environment: Mapping[str, str]) -> None:
    """The process ends with the verb's code, and without a traceback."""
    ran = celery({**environment, "TEST_DATABASE_URL": AWAY}, "supervise", "jobs")
    assert ran.returncode == 3
    assert "Error: Postgres cannot be reached" in ran.stderr
    assert "Traceback" not in ran.stderr


DEEP = "[" * 100_000
LONG_WORD = "x" * 100_000


@pytest.mark.parametrize(
    "words",
    [
        ("cancel", "JOB", "--terminate", "--grace", "nan", "--as", "ann"),
        ("answer", "QUESTION", "--json", DEEP, "--as", "ann"),
        ("withdraw", "--as", "ann", "--", "-1"),
        ("withdraw", "--as", "ann", "--", "-"),
        ("jobs", "--limit", "9" * 100_000),
        ("jobs", "--limit=" + "9" * 100_000),
        ("jobs", "--state", "é'\n" * 100_000),
        ("log", "JOB", "--event", LONG_WORD),
        ("extend", "JOB", "--by", LONG_WORD, "--as", "ann"),
        ("show", LONG_WORD),
        ("show", "JOB", "--" + LONG_WORD),
        ("answer", "QUESTION", LONG_WORD, "--as", "ann"),
        ("answer", "QUESTION", f"{LONG_WORD}=1", f"{LONG_WORD}.a=1", "--as", "ann"),
        ("answer", "QUESTION", f"{LONG_WORD}=1", "--as", "ann"),
    ],
    ids=lambda words: ascii(words[0] + words[-1][:4]),
)
def test_what_is_typed_wrongly_is_told_in_a_line(desk: Desk, words: Sequence[str]) -> None:
    """No traceback, and nothing done: a number that is none, JSON nobody can read, an option taken for an id."""
    question = desk.asked()
    named = {"JOB": desk.job_of(question), "QUESTION": str(question.id)}
    ran = invoke(desk.app, *(named.get(word, word) for word in words))
    assert ran.exit_code in (1, 2)
    assert len(ran.stderr) < 2000
    assert desk.shop.supervisor.question(question.id).status == "pending"


def test_preflight_of_code_that_can_go_on(desk: Desk) -> None:
    """Ready is exit code 0, also with jobs that are not over."""
    desk.pending()
    assert desk.run("preflight").stdout == "this code can go on with every job\n"
    assert desk.read("preflight") == {"ready": True, "stranded": []}


def test_preflight_lists_what_would_be_stranded(desk: Desk) -> None:
    """Exit code 1, and of each kind of job how many, which, and what they lack."""
    ids = [desk.shop.pending(task="shop.gone").id for _ in range(6)]
    old = desk.shop.pending(task="shop.pay", task_version=2).id
    ran = desk.run("preflight", code=1)
    assert (
        f"6 pending jobs of shop.gone, version 1 ({', '.join(ids[:5])}, …): there is no task of this name" in ran.stdout
    )
    assert f"1 pending job of shop.pay, version 2 ({old}): this code goes on with jobs of version 1 only" in ran.stdout
    listed = json.loads(desk.run("preflight", "--json", code=1).stdout)
    assert [(one["task"], one["jobs"], one["oldest"]) for one in listed["stranded"]] == [
        ("shop.gone", 6, ids[:5]),
        ("shop.pay", 1, [old]),
    ]


def add(number: int) -> int:
    """A task."""
    return number + 1


def needs_load(memory: Remembered) -> None:
    """A migration that cannot do without."""
    memory.read("load")


def test_preflight_tries_migrations(desk: Desk) -> None:
    """What would be migrated is, for a trial; a job whose migration raises is listed with what it raised."""
    fine, empty = desk.shop.running(task="shop.other"), desk.shop.pending(task="shop.other")
    fine.checkpoint("load", NodeKind.STEP, Stored(b"1", "json"))
    options = Options(version=2, migrate={1: needs_load})
    desk.app.task(base=SupervisedTask, shared=False, name="shop.other", supervise=options)(add)
    ran = desk.run("preflight", code=1)
    assert f"1 pending job of shop.other, version 1 ({empty.id}): its migration raises InvalidInput" in ran.stdout
    assert fine.lease.job_id not in ran.stdout


@pytest.mark.parametrize("verb", VERBS)
def test_each_verb_has_help_with_examples(verb: str) -> None:
    """Help says how the verb is typed; it needs no setting and no database."""
    ran = invoke(make_app(), verb, "--help")
    assert ran.exit_code == 0
    examples = re.findall(rf"^ +celery -A proj supervise {verb}\b.*$", ran.stdout, re.MULTILINE)
    assert examples
    said = ran.stdout if VERBS[verb] not in {"serving", "tokens"} else re.sub("(?i)tokens?", "", ran.stdout)
    assert not INSIDE_WORDS.search(said)


def test_a_shops_preload_options_reach_the_shop(environment: Mapping[str, str]) -> None:
    """An option that a shop adds to all of celery's commands works with ours, and is told to the shop."""
    ran = celery({**environment, "TEST_DATABASE_URL": AWAY}, "supervise", "--tenant", "acme", "jobs")
    assert ran.returncode == 3, ran.stderr
    assert ran.stderr.startswith("tenant: acme\nError: Postgres cannot be reached")

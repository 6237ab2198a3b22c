"""The verbs of operators, on a real app and a real database."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from celery_supervise.lifecycle import State
from celery_supervise.model import NodeKind
from celery_supervise.relay import Told, mark_settled
from celery_supervise.runtime import runtime_of
from tests.celery.cli_app import make_app
from tests.celery.test_cli import DAEMON, HOUR, INSIDE_WORDS, ROOT_USER, SHORT_LEASE, Desk, invoke
from tests.celery.test_cli import desk as a_desk
from tests.postgres.shop import failure, stored

ANN = ("--as", "ann")


@pytest.fixture
def desk(database_url: str) -> Iterator[Desk]:
    """A terminal, on this test's database."""
    yield from a_desk.__wrapped__(database_url)  # type: ignore[attr-defined]  # pytest wraps a fixture's function


# --- why -------------------------------------------------------------------------------------------------


def test_why_says_it_in_a_sentence_with_the_command(desk: Desk, as_user: Any) -> None:
    """A person reads why the job stands, and can copy what moves it; a beginning of the id is enough."""
    as_user(DAEMON)
    question = desk.asked()
    job_id = desk.job_of(question)
    said, by = desk.run("why", job_id[:12]).stdout.splitlines()
    assert said.startswith(f"{job_id} (parked): waits for an answer to approve until 20")
    assert by == f"  celery -A proj supervise answer {question.id} ANSWER"
    assert not INSIDE_WORDS.search(said)


def test_show_tells_that_a_job_waits_for_its_turn(database_url: str, desk: Desk) -> None:
    """Where its owner runs as many as it may, no worker is missing: `show` says what `why` says."""
    limited = make_app(supervise_database_url=database_url, supervise_owner_running=1, **SHORT_LEASE)
    options: dict[str, Any] = {"supervise": {"owner": "acme"}}
    said = desk.run("show", limited.tasks["shop.pay"].apply_async((1,), **options).id).stdout
    assert re.search(r"^state +pending: waits for its turn in queue celery \(", said, re.MULTILINE)
    runtime_of(limited).engines.dispose()


def test_why_for_programs(desk: Desk) -> None:
    """The same as fields; a job that needs nothing has no command."""
    job_id = desk.running().lease.job_id
    told = desk.read("why", job_id)
    assert (told["job_id"], told["state"], told["command"]) == (job_id, "running", None)
    assert told["why"].startswith("running on worker@test (attempt 1)")


def test_why_of_no_job(desk: Desk) -> None:
    """A line and an exit code."""
    assert desk.run("why", "nothing", code=1).stderr == "Error: there is no job 'nothing'\n"


# --- log -------------------------------------------------------------------------------------------------


def test_log_of_some_events(desk: Desk) -> None:
    """Only what was asked for, as people or as programs call it; the counts are of these."""
    holding = desk.running()
    for number in range(3):
        holding.checkpoint(f"n{number}", NodeKind.STEP, stored("1"))
    desk.shop.lose(holding)
    job_id = holding.lease.job_id
    lines = desk.run("log", job_id, "--event", "checkpoint", "--event", "worker lost").stdout.splitlines()
    assert [line.split()[3] for line in lines[1:-1]] == ["checkpoint"] * 3 + ["worker"]
    assert lines[-1] == "4 entries of checkpoint, worker lost"
    lines = desk.run("log", job_id, "--event", "checkpoint", "--limit", "1").stdout.splitlines()
    assert lines[-1] == (
        "1 of 3 entries of checkpoint; 2 withheld: --before 5 shows those before, --all shows all of them"
    )
    whole = desk.read("log", job_id, "--event", "checkpoint", "--all")
    assert [entry["sequence_num"] for entry in whole["entries"]] == [3, 4, 5]
    page = desk.read("log", job_id, "--event", "checkpoint", "--before", "4")
    assert ([entry["sequence_num"] for entry in page.pop("entries")], page) == (
        [3],
        {"returned_count": 1, "total_count": 3, "withheld_count": 2, "truncated": True},
    )


def test_log_of_an_event_that_there_is_not(desk: Desk) -> None:
    """A misspelt event is wrong usage, and not a log without entries; the nearest is named."""
    refused = desk.run("log", desk.pending(), "--event", "submited", code=2).stderr
    assert "'submited' is none; did you mean 'submitted'? There are answered, " in refused
    assert "did you mean 'worker lost'?" in desk.run("log", "x", "--event", "worker losst", code=2).stderr


def test_a_stop_reason_that_there_is_not(desk: Desk) -> None:
    """Likewise, where many are chosen by it: nothing is done."""
    paused = desk.paused()
    refused = desk.run("resume", "--reason", "user_pause", *ANN, code=2).stderr
    assert refused.startswith("Error: reason: 'user_pause' is none; did you mean 'user_paused'? There are answered, ")
    assert desk.shop.job(paused).stop_reason == "user_paused"


# --- prune and erase -------------------------------------------------------------------------------------


def ended(desk: Desk, **options: Any) -> str:
    """A job that has completed, and of which Celery was told."""
    holding = desk.running(**options)
    holding.complete(stored("1"))
    job = desk.shop.job(holding.lease.job_id)
    mark_settled(desk.shop.door, [Told(job.id, job.settle_id)], actor="relay")
    return job.id


def test_prune_counts_then_removes(desk: Desk) -> None:
    """A dry run only counts; then old jobs are gone, and young ones and open ones are not."""
    done, open_ = ended(desk), desk.pending()
    assert desk.run("prune", "--older-than", "30d", *ANN).stdout == "0 jobs removed\n"
    assert desk.run("prune", "--older-than", "0s", "--dry-run").stdout == "1 job would be tried\n"
    desk.run("show", done)
    assert desk.read("prune", "--older-than", "0s", *ANN) == {"dry_run": False, "pruned": 1, "left": 0, "more": False}
    assert desk.run("show", done, code=1).stderr == f"Error: there is no job '{done}'\n"
    desk.run("show", open_)


def test_prune_says_what_it_left(desk: Desk) -> None:
    """What a limit leaves for the next time is told."""
    for _ in range(2):
        ended(desk)
    said = desk.run("prune", "--older-than", "0s", "--limit", "1", *ANN).stdout
    assert said == "1 job removed; there may be more: repeat it\n"


@pytest.mark.parametrize("words", [("30",), ("-30d",), ("30y",), ("",), ("1d 2",), ("9" * 30 + "d",)])
def test_prune_refuses_what_is_no_length_of_time(desk: Desk, words: tuple[str, ...]) -> None:
    """Wrong usage, with examples of what is right."""
    assert "1d12h" in desk.run("prune", f"--older-than={words[0]}", *ANN, code=2).stderr


def test_erase_of_a_job(desk: Desk) -> None:
    """Its values go, once; a job that has not ended keeps them, and the reason is told."""
    done = ended(desk)
    assert desk.run("erase", done[:12], *ANN).stdout == f"{done}: its values are erased\n"
    assert desk.run("erase", done, *ANN).stdout == f"{done}: nothing was left to erase\n"
    assert desk.read("log", done)["entries"][-1]["actor"] == "cli:ann"
    shown = desk.run("show", done).stdout
    assert "cannot be shown here: it was erased" in shown
    assert re.search(r"^values +erased at 2", shown, re.MULTILINE)
    assert "only the values of a job that has ended" in desk.run("erase", desk.pending(), *ANN, code=1).stderr


def test_erase_of_an_owner(desk: Desk) -> None:
    """All of theirs that have ended; how many are left is told."""
    options = {"supervise": {"owner": "acme"}}
    ended(desk, **options)
    desk.pending(**options)
    said = desk.run("erase", "--owner", "acme", *ANN).stdout
    assert said == "the values of 1 job are erased; 1 job left: not ended, or Celery not told of it yet\n"
    assert desk.read("erase", "--owner", "acme", *ANN) == {"erased": 1, "left": 1}


@pytest.mark.parametrize("words", [(), ("3f2a", "--owner", "acme")])
def test_erase_of_what(desk: Desk, words: tuple[str, ...]) -> None:
    """A job or an owner: neither and both are wrong usage."""
    assert "one of them" in desk.run("erase", *words, *ANN, code=2).stderr


def test_sweep_removes_what_is_over_its_time(database_url: str, desk: Desk) -> None:
    """With the setting, a sweep does it; without, nothing is said of it."""
    ended(desk)
    assert "removed after their time" not in desk.run("sweep").stdout
    keeping = make_app(supervise_database_url=database_url, supervise_retention_seconds=0.001, **SHORT_LEASE)
    assert "removed after their time  1 job" in invoke(keeping, "sweep").stdout
    runtime_of(keeping).engines.dispose()


# --- stats -----------------------------------------------------------------------------------------------


def test_stats_for_people(desk: Desk) -> None:
    """Each part has its lines: states, ages, queues, what is parked, what runs where."""
    desk.pending()
    desk.paused()
    desk.running().checkpoint("load", NodeKind.STEP, stored("1"))
    said = desk.run("stats").stdout
    for line in (
        r"pending    1",
        r"completed  0",
        r"oldest pending +\d+ s ago",
        r"QUEUE +WAIT FOR A WORKER +THE FIRST FOR",
        r"user_paused +1 +\d+ s",
        r"shop\.pay +load +1 +\d+ s +\d+ s",
    ):
        assert re.search(f"(?m)^{line}$", said), said
    assert not INSIDE_WORDS.search(said)


def test_stats_for_programs(desk: Desk) -> None:
    """All numbers, times in seconds; nothing there is 0 or null."""
    told = desk.read("stats")
    assert told["jobs"] == dict.fromkeys(map(str, State), 0)
    assert (told["oldest_pending"], told["stages"], told["capped"]) == (None, [], [])
    desk.pending()
    told = desk.read("stats")
    assert (told["jobs"]["pending"], told["oldest_pending"] > 0) == (1, True)


# --- many at once ----------------------------------------------------------------------------------------


def test_cancel_of_many(desk: Desk) -> None:
    """A dry run shows jobs and generations; then each gets a line, and a number tells how many."""
    jobs = sorted(desk.pending(supervise={"owner": "acme"}) for _ in range(2))
    desk.pending()
    shown = desk.run("cancel", "--owner", "acme", "--dry-run").stdout.splitlines()
    assert shown[0].split() == ["JOB", "STATE", "GENERATION", "TASK"]
    assert sorted(line.split()[0] for line in shown[1:-1]) == jobs
    assert shown[-1] == "2 jobs would be tried"
    done = desk.run(
        "cancel", "--owner", "acme", "--state", "pending", "--why", "ordered twice", *ANN
    ).stdout.splitlines()
    assert done == [*(f"{job_id}: cancelled (generation 2)" for job_id in jobs), "2 jobs done"]
    assert desk.run("cancel", "--owner", "acme", *ANN).stdout == "0 jobs done\n"


def test_what_a_dry_run_showed_is_done(desk: Desk, tmp_path: Path) -> None:
    """`--from` does exactly that; what has changed since is not done, and the exit code says so."""
    same, changed = sorted(desk.pending() for _ in range(2))
    listed = desk.run("pause", "--task", "shop.pay", "--dry-run", "--json", *ANN).stdout
    (tmp_path / "jobs.json").write_text(listed)
    desk.shop.hold(changed)
    ran = desk.run("pause", "--from", str(tmp_path / "jobs.json"), *ANN, code=1).stdout.splitlines()
    assert ran == [
        f"{same}: it will not start until resumed (generation 2)",
        f"{changed}: not done: the job has changed since (generation 2, not 1); look again",
        "1 job done, 1 not done",
    ]
    told = json.loads(desk.run("pause", "--from", "-", "--json", *ANN, code=1, stdin=listed).stdout)
    assert (told["done_count"], told["refused_count"]) == (0, 2)
    assert {result["error"]["code"] for result in told["results"]} == {"stale_generation"}


def test_a_limit_is_told(desk: Desk) -> None:
    """What is left for the next time is counted."""
    for _ in range(3):
        desk.pending()
    shown = desk.run("cancel", "--all", "--limit", "2", "--dry-run", *ANN).stdout.splitlines()
    assert shown[-1] == "2 jobs would be tried; 1 more: --limit takes more at once"
    told = desk.read("cancel", "--all", "--limit", "2", *ANN)
    assert (told["done_count"], told["total_count"], told["withheld_count"]) == (2, 3, 1)


def test_resume_of_many(desk: Desk) -> None:
    """All that a person paused go on."""
    paused = [desk.paused() for _ in range(2)]
    desk.asked()
    said = desk.run("resume", "--reason", "user_paused", *ANN).stdout
    assert said.count("goes on as soon as a worker takes it") == 2
    assert {desk.shop.job(job_id).stop_reason for job_id in paused} == {"resume_requested:user_paused"}


@pytest.mark.parametrize(
    "words",
    [
        ("cancel",),
        ("cancel", "--dry-run"),
        ("pause", "3f2a", "--task", "shop.pay"),
        ("pause", "3f2a", "--dry-run"),
        ("resume", "--all", "--expected-generation", "3"),
        ("cancel", "--all", "--from", "-"),
        ("cancel", "--state", "completed"),
        ("cancel", "--all", "--terminate"),
    ],
)
def test_many_by_mistake(desk: Desk, words: tuple[str, ...]) -> None:
    """A verb that names nothing in particular, or two things at once, does nothing."""
    job = desk.pending()
    desk.run(*words, *ANN, code=2, stdin="{}")
    assert desk.shop.job(job).generation == 1


@pytest.mark.parametrize(
    "text", ["", "[]", '{"jobs": [{"job_id": "a"}]}', '{"jobs": [{"job_id": 7, "generation": 1}]}']
)
def test_a_list_that_is_none(desk: Desk, text: str) -> None:
    """A file that no dry run printed is wrong usage, told in a line."""
    said = desk.run("cancel", "--from", "-", *ANN, code=2, stdin=text).stderr
    assert "is not what --dry-run --json prints" in said


# --- kick ------------------------------------------------------------------------------------------------


def test_kick_of_a_job(desk: Desk) -> None:
    """The message goes out, or the person is told why there is none."""
    job_id = desk.pending()
    assert desk.run("kick", job_id[:12], *ANN).stdout == f"{job_id}: its message was sent to queue celery\n"
    assert desk.read("kick", job_id, *ANN) == {"job_id": job_id, "queue": "celery", "sent": True}
    refused = desk.run("kick", desk.paused(), *ANN, code=1).stderr
    assert refused.startswith("Error: there is nothing to send: paused by user:ann")


def test_rerun_of_many(desk: Desk) -> None:
    """Each that failed becomes a new job, of which the line tells; a second time there is none left."""
    jobs = sorted(desk.pending() for _ in range(2))
    for job_id in jobs:
        desk.shop.hold(job_id).fail(failure())
    said = desk.run("rerun", "--task", "shop.pay", "--state", "failed", *ANN).stdout.splitlines()
    assert [line.partition(": runs again, as ")[0] for line in said[:-1]] == jobs
    assert said[-1] == "2 jobs done"
    assert desk.read("rerun", "--all", *ANN)["results"] == []


def test_extend_of_many(desk: Desk) -> None:
    """Jobs with a deadline get more time; programs are told each."""
    job_id = desk.pending(supervise={"deadline": HOUR})
    desk.pending()
    assert desk.run("extend", "--all", "--by", "1h", *ANN).stdout.splitlines() == [
        f"{job_id}: has more time (generation 2)",
        "1 job done",
    ]
    assert desk.read("extend", "--all", "--by", "1h", *ANN)["results"][0]["generation"] == 3
    for words in (("--all",), ("--all", "--by", "1h", "--question"), ("--by", "1h")):
        desk.run("extend", *words, *ANN, code=2)


# --- holds -----------------------------------------------------------------------------------------------


def test_hold_and_release(desk: Desk) -> None:
    """A task is held and listed with who and why; its jobs wait, and say so; then it is released."""
    job_id = desk.pending()
    said = desk.run("hold", "--task", "shop.pay", "--reason", "the bank is down", *ANN).stdout
    assert said == "task shop.pay: held; none of its jobs starts until it is released\n"
    assert "it does not start while its task shop.pay is held" in desk.run("why", job_id).stdout
    shown = desk.run("show", job_id).stdout
    assert re.search(r"^state +pending: it does not start while .* is held, .*bank is down", shown, re.MULTILINE)
    assert "shop.pay is held" in desk.read("show", job_id)["why"]
    listed = desk.run("holds").stdout.splitlines()
    assert listed[0].split() == ["WHAT", "NAME", "SINCE", "BY", "WHY"]
    assert re.search(r"^task +shop\.pay +.*cli:ann +the bank is down$", listed[1])
    assert listed[2] == "1 hold"
    assert desk.read("holds")["holds"][0]["reason"] == "the bank is down"
    said = desk.run("release", "--task", "shop.pay", *ANN).stdout
    assert said == "task shop.pay: released; its jobs start as workers take them\n"
    assert desk.run("release", "--task", "shop.pay", *ANN, code=1).stdout == "task shop.pay: was not held\n"
    assert desk.run("holds").stdout == "0 holds\n"


def test_a_hold_of_a_task_that_nobody_knows(desk: Desk) -> None:
    """It is held, since its code may be elsewhere; the person is told, for it may be written wrong."""
    ran = desk.run("hold", "--task", "shop.pya", "--reason", "no", *ANN)
    assert ran.stdout.startswith("task shop.pya: held;")
    assert ran.stderr.startswith("Note: there is no job of shop.pya, and this app has no task of that name")
    assert desk.run("hold", "--task", "shop.pay", "--reason", "no", *ANN).stderr == ""
    desk.pending()
    desk.shop.pending(task="shop.elsewhere")
    assert desk.run("hold", "--task", "shop.elsewhere", "--reason", "no", *ANN).stderr == ""


@pytest.mark.parametrize("uid", [ROOT_USER, DAEMON])
def test_the_command_of_why_releases(desk: Desk, as_user: Any, uid: int) -> None:
    """What `why` says to type is typed as it stands, and the hold is gone."""
    desk.run("hold", "--owner", "-odd one", "--reason", "unpaid", *ANN)
    job_id = desk.pending(supervise={"owner": "-odd one"})
    as_user(uid)
    by = desk.read("why", job_id)["command"]
    desk.run(*shlex.split(by)[4:])
    assert desk.read("holds") == {"holds": []}


@pytest.mark.parametrize(
    "words",
    [
        ("hold", "--reason", "r"),
        ("hold", "--task", "t", "--owner", "o", "--reason", "r"),
        ("hold", "--task", "t"),
        ("hold", "--task", "t", "--reason", " "),
        ("release",),
    ],
)
def test_holds_by_mistake(desk: Desk, words: tuple[str, ...]) -> None:
    """A task or an owner, and a reason: else nothing is held."""
    desk.run(*words, *ANN, code=2)
    assert desk.read("holds") == {"holds": []}

"""The verbs `questions` and `answer`: the inbox. No rule lives here; the service judges answers."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

import click

from celery_supervise.asked import asked
from celery_supervise.lookup import count_open_questions, find_job, find_question
from celery_supervise.model import Moved, Question
from celery_supervise.moments import near
from celery_supervise.supervisor import Supervisor
from celery_supervise.views import moved_view
from celery_supervise.words import answered, voted

from .answers import answer_of, parse_json
from .asked import question_text
from .jobs import PAGE, counted, shown
from .render import escape, pairs, to_json
from .verb import NAME, as_option, clock, generation_option, json_option, runtime, say, verb


@verb("questions", "questions --job 3f2a", "questions --owner acme --json")
@click.option("--job", "job_id", type=NAME, metavar="JOB", help="All that this job has asked, answered ones too.")
@click.option("--owner", type=NAME, help="Whose jobs.")
@click.option("--limit", type=click.IntRange(1, 10_000), default=PAGE, show_default=True, help="At most so many.")
@json_option
@click.pass_context
def questions(ctx: click.Context, *, job_id: str | None, owner: str | None, limit: int, as_json: bool) -> None:
    """List what waits for an answer.

    The oldest first, with the form of the answer and a command that gives one.
    """
    supervisor = runtime(ctx).supervisor
    found, total = _found(supervisor, job_id, owner, limit)
    if as_json:
        views = [asked(supervisor, question).view for question in found]
        say(ctx, to_json({"questions": views, **counted(len(found), total)}))
        return
    now = clock(supervisor.door)
    for question in found:
        say(ctx, _text(ctx, supervisor, question, now) + "\n")
    say(ctx, shown(len(found), total, "question" if job_id else "open question"))


def _found(supervisor: Supervisor, job_id: str | None, owner: str | None, limit: int) -> tuple[Sequence[Question], int]:
    if job_id is None:
        found = supervisor.questions(owner=owner, page=limit)
        return found, max(len(found), count_open_questions(supervisor, owner=owner))
    every = supervisor.questions(job_id=find_job(supervisor, job_id).id, owner=owner)
    return every[:limit], len(every)


def _text(ctx: click.Context, supervisor: Supervisor, question: Question, now: datetime) -> str:
    about = pairs(
        [
            ("job", f"{escape(question.job_id)} ({escape(question.task)})"),
            ("owner", escape(question.owner_id) if question.owner_id else None),
            ("asked", near(question.asked_at, now)),
            ("generation", str(question.generation)),
        ],
        "  ",
    )
    return f"{question_text(ctx, asked(supervisor, question), now)}\n{about}"


@verb(
    'answer 7c1e approved=true note="checked with Ann"',
    "answer 7c1e skip",
    """answer 7c1e --json '{"approved": true}'""",
    "answer 7c1e --json - < answer.json",
)
@click.argument("question_id", metavar="QUESTION", type=NAME)
@click.argument("words", metavar="[FIELD=VALUE]...", nargs=-1)
@click.option(
    "--json",
    "json_text",
    metavar="JSON",
    help="The whole answer as JSON; - reads it from stdin. The reply is JSON too.",
)
@click.option("--seen", type=NAME, metavar="DIGEST", help="Only if the question is still the one with this digest.")
@generation_option
@as_option
@click.pass_context
def answer(
    ctx: click.Context,
    *,
    question_id: str,
    words: tuple[str, ...],
    json_text: str | None,
    seen: str | None,
    expected_generation: int | None,
    actor: str,
) -> None:
    """Answer a question. The job goes on as soon as a worker takes it.

    The question's form says what the words mean: approved=true is the value true where the form asks for one,
    and the text where it asks for a text. A list takes its field several times, a nested field has a dotted
    name.

    Where several people must agree, your answer is a vote: another one of yours replaces it.
    """
    if bool(words) == (json_text is not None):
        raise click.UsageError("Give the answer as words or by --json, one of the two.")
    supervisor = runtime(ctx).supervisor
    question = find_question(supervisor, question_id)
    value = answer_of(words, question.schema) if json_text is None else parse_json(_text_of(json_text))
    moved = supervisor.answer(question.id, value, actor=actor, seen=seen, expected_generation=expected_generation)
    open_ = moved.question_id is not None
    said = _voted(supervisor, moved, question.id) if open_ else answered(moved)
    did = "voted" if open_ else "answered"
    say(ctx, f"{did}: {said}" if json_text is None else to_json(moved_view(moved, said)))


def _voted(supervisor: Supervisor, moved: Moved, question_id: UUID) -> str:
    now = asked(supervisor, supervisor.question(question_id))
    return voted(moved, now.question, differ=now.is_disputed)


def _text_of(given: str) -> str:
    return sys.stdin.read() if given == "-" else given

"""The verbs `reassign` and `withdraw`: an open question goes to other people, or is taken back. The service decides."""

from __future__ import annotations

from typing import Any

import click

from celery_supervise.lookup import find_question
from celery_supervise.model import Moved

from .render import escape, to_json
from .verb import NAME, Name, as_option, generation_option, json_option, runtime, say, verb
from .views import moved_view
from .words import reassigned, withdrawn


class Who(Name):
    """One person or group. Several in one text would be one of that long name, whom nobody is.

    Names of a directory (`cn=ann,ou=shop`) have commas of their own.
    """

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The name."""
        name = super().convert(value, param, ctx)
        if "," in name and "=" not in name:
            each = " ".join(f"--to {part}" for part in name.replace(" ", "").split(",") if part)
            self.fail(f"one name each: {each}", param, ctx)
        return name


WHO = Who()


@verb("reassign 7c1e --to ann", 'reassign 7c1e --to bob --to group:finance --why "ann is ill"')
@click.argument("question_id", metavar="QUESTION", type=NAME)
@click.option(
    "--to", type=WHO, metavar="WHO", multiple=True, required=True, help="A person, or group:NAME. Repeatable."
)
@click.option("--why", type=NAME, metavar="TEXT", help="The reason, for the log.")
@generation_option
@as_option
@json_option
@click.pass_context
def reassign(
    ctx: click.Context,
    *,
    question_id: str,
    to: tuple[str, ...],
    why: str | None,
    expected_generation: int | None,
    actor: str,
    as_json: bool,
) -> None:
    """Give an open question to other people.

    From then on they may answer, and nobody else. Votes that were given are void. Nobody can take a question for
    themselves that they may not answer.
    """
    supervisor = runtime(ctx).supervisor
    question = find_question(supervisor, question_id)
    moved = supervisor.reassign(question.id, to=to, actor=actor, why=why, expected_generation=expected_generation)
    _say(ctx, str(question.id), moved, reassigned(moved, to), as_json=as_json)


@verb("withdraw 7c1e", 'withdraw 7c1e --why "wrong amount"')
@click.argument("question_id", metavar="QUESTION", type=NAME)
@click.option("--why", type=NAME, metavar="TEXT", help="The reason, for the log.")
@generation_option
@as_option
@json_option
@click.pass_context
def withdraw(
    ctx: click.Context, *, question_id: str, why: str | None, expected_generation: int | None, actor: str, as_json: bool
) -> None:
    """Take an open question back.

    Nobody can answer it any more. The task goes on, and asks anew where it comes to the question again.
    """
    supervisor = runtime(ctx).supervisor
    question = find_question(supervisor, question_id)
    moved = supervisor.withdraw(question.id, actor=actor, why=why, expected_generation=expected_generation)
    _say(ctx, str(question.id), moved, withdrawn(moved), as_json=as_json)


def _say(ctx: click.Context, question_id: str, moved: Moved, said: str, *, as_json: bool) -> None:
    if as_json:
        say(ctx, to_json(moved_view(moved, said)))
    else:
        say(ctx, f"{question_id}: {escape(said)} (generation {moved.generation})")

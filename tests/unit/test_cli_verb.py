"""What all verbs share: nothing is loaded too early, errors end in the right code, notes reach the person."""

from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import click
import pytest
from celery import Celery
from celery.bin.base import CLIContext
from click.testing import CliRunner, Result

from celery_supervise import cli, doctor, errors
from celery_supervise.cli import upkeep
from celery_supervise.cli.commands import celery_command, command, filled
from celery_supervise.cli.verb import Verb, json_option, say
from celery_supervise.cli.verb import verb as a_verb
from celery_supervise.sweeps import Swept

PATIENCE = 60  # seconds


def test_the_group_loads_no_verb() -> None:
    """Importing the plug-in, as every celery command does, loads no verb and not Alembic."""
    script = "import sys, celery_supervise.cli; print(*sorted(sys.modules))"
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=PATIENCE, check=True)
    loaded = ran.stdout.split()
    assert [name for name in loaded if name.startswith("celery_supervise.cli")] == ["celery_supervise.cli"]
    assert "alembic" not in loaded


def test_every_verb_of_the_list_is_there() -> None:
    """The list of verbs is the list of commands, and each command bears its verb's name."""
    context = click.Context(cli.supervise)
    commands = [cli.supervise.get_command(context, name) for name in cli.supervise.list_commands(context)]
    assert [command.name for command in commands if isinstance(command, Verb)] == list(cli.VERBS)
    assert cli.supervise.get_command(context, "nothing") is None


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.JobNotFound("x"), 1),
        (errors.Conflict("busy", state=None, detail="busy"), 1),
        (errors.NotMigrated("supervise", "it is not there"), 1),
        (errors.InvalidAnswer({"a": ["is required"]}), 1),
        (errors.ConfigError("supervise_queue", "no"), 2),
        (errors.InvalidInput("actor", "no"), 2),
        (errors.TooLarge("answer", size=2, limit=1), 2),
        (errors.DatabaseUnavailable("refused"), 3),
    ],
)
def test_each_error_has_its_exit_code(error: Exception, code: int) -> None:
    """Refused is 1, wrong usage or setting 2, unreachable 3; for people a line, for programs its attributes."""
    text, json_text = failing(error), failing(error, "--json")
    assert [text.exit_code, json_text.exit_code] == [code, code]
    assert text.stderr.startswith("Error: ")
    assert f'"type": "{type(error).__name__}"' in json_text.stderr
    assert text.stdout == json_text.stdout == ""


def test_a_bug_is_not_hidden() -> None:
    """What is no error of ours passes with its traceback."""
    assert isinstance(failing(KeyError("bug")).exception, KeyError)


@pytest.fixture(params=[logging.WARNING, logging.ERROR], ids=["root at WARNING", "root at ERROR"])
def root_level(request: pytest.FixtureRequest) -> Iterator[None]:
    """The level that the shop gave its root logger."""
    root = logging.getLogger()
    before = root.level
    root.setLevel(request.param)
    yield
    root.setLevel(before)


@pytest.mark.usefixtures("root_level")
def test_what_the_service_warns_of_is_a_note() -> None:
    """A warning that the service logs is told in words, escaped; what it is not known for, as it was logged."""

    def act(_: click.Context) -> None:
        logger = logging.getLogger("celery_supervise.supervisor")
        logger.warning("supervise.publish_deferred", extra={"why": "refused\x1b[2J"})
        logger.warning("something else")
        logger.warning("supervise.sweep_held", extra={"why": "which the verb tells itself"})
        logger.info("nothing to tell")

    assert run(act).stderr.splitlines() == [
        "Note: the broker does not answer just now; the job goes on as soon as it does (refused\\x1b[2J)",
        "Note: something else",
    ]
    assert not [h for h in logging.getLogger("celery_supervise").handlers if type(h).__name__ == "Notes"]


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["show", "3f2a"], "celery -A proj supervise show 3f2a"),
        (["show", "$(rm -r .)"], "celery -A proj supervise show '$(rm -r .)'"),
        (["show", "--all"], "celery -A proj supervise show -- --all"),
        (["answer", "7c1e", "note=a b"], "celery -A proj supervise answer 7c1e 'note=a b'"),
        (["show", "a\x1bb"], "None"),
    ],
)
def test_a_command_to_copy_is_safe_to_run(words: list[str], hint: str) -> None:
    """An id is quoted for the shell, never taken for an option, and not offered where it cannot be shown."""
    assert run(lambda ctx: say(ctx, str(command(ctx, *words)))).stdout == hint + "\n"


@pytest.fixture
def context(monkeypatch: pytest.MonkeyPatch) -> click.Context:
    """Of a verb of ours, of the app `shop.app`, for root."""
    monkeypatch.setattr("os.geteuid", lambda: 0)
    monkeypatch.setenv("CELERY_APP", "shop.app")
    parent = click.Context(cli.supervise)
    verb = cli.supervise.get_command(parent, "doctor")
    assert verb is not None
    return click.Context(verb, parent=parent)


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["resume", "3f2a"], "supervise resume --as USER 3f2a"),
        (["answer", "--", "-x", "yes"], "supervise answer --as USER -- -x yes"),
        (["sweep"], "supervise sweep"),
    ],
)
def test_root_is_told_to_give_a_name(context: click.Context, words: list[str], hint: str) -> None:
    """Where a verb needs `--as`, the command to copy has it; where it does not know the option, not."""
    assert celery_command(context, "supervise", *words) == f"celery -A shop.app {hint}"


def test_the_commands_in_a_text_work_here(context: click.Context) -> None:
    """What the library itself says to run names this app, and the person where a name is needed."""
    said = "run: celery -A proj supervise migrate; or: celery -A proj supervise release --task=a; celery -A proj worker"
    assert filled(context, said) == (
        "run: celery -A shop.app supervise migrate; or: celery -A shop.app supervise release --as USER --task=a;"
        " celery -A shop.app worker"
    )


def test_a_sweep_that_another_process_does_is_told_so() -> None:
    """A pass that did nothing since somebody else is at it is not told as a pass that found nothing."""
    assert upkeep._pass(Swept("expire", ran=False), timedelta(seconds=60)) == "another process is at it"


def test_doctor_says_what_it_could_not_look_at() -> None:
    """A check that met a busy row is an error with the advice to look again."""
    found = doctor._failure(errors.Conflict("busy", state=None, detail="another operation holds this job just now"))
    assert (found.severity, found.what) == (doctor.Severity.ERROR, "another operation holds this job just now")
    assert found.advice == "Run doctor again."


def test_doctor_knows_each_check_by_a_name() -> None:
    """No two checks share a name, and what a check needs comes before it."""
    names = [check.name for check in doctor.CHECKS]
    assert len(set(names)) == len(names)
    assert all(check.needs <= set(names[:number]) for number, check in enumerate(doctor.CHECKS))


# --- a verb for these tests --------------------------------------------------------------------------------


def failing(error: Exception, *words: str) -> Result:
    """Run a verb that meets an error."""

    def act(_: click.Context) -> None:
        raise error

    return run(act, *words)


def run(act: Any, *words: str) -> Result:
    """Run a verb that does `act`."""

    @a_verb("try")
    @json_option
    @click.pass_context
    def try_(ctx: click.Context, *, as_json: bool) -> None:  # noqa: ARG001  # the verb's own
        act(ctx)

    return CliRunner().invoke(
        try_, words, obj=CLIContext(app=Celery(set_as_current=False), no_color=True, workdir=None)
    )

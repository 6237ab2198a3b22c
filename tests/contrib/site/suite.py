"""What Django's side does, in a Django project. Run by tests/contrib/test_django.py, in a process of its own."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from typing import Any

import click
import pytest
import redis
from celery.result import AsyncResult
from django.conf import settings
from django.contrib.auth.models import Group, Permission, User
from django.core import mail
from django.core.management import call_command
from django.db import connection, connections, transaction
from django.test import Client, RequestFactory, TestCase, TransactionTestCase
from django.test.utils import CaptureQueriesContext
from proj import celery_app, tasks
from proj.models import Order
from sqlalchemy.pool import NullPool, QueuePool

from celery_supervise import (
    ConfigError,
    InvalidAnswer,
    InvalidInput,
    JobExists,
    JobFailed,
    JobNotFound,
    NotMigrated,
    QuestionClosed,
    State,
    Supervisor,
)
from celery_supervise.aliases import url_of
from celery_supervise.contrib.django import apps
from celery_supervise.contrib.django.apps import make_tables
from celery_supervise.contrib.django.authentication import LoginAuthenticator, authenticate, groups_of
from celery_supervise.contrib.django.management.commands.supervise import Command
from celery_supervise.contrib.django.models import Job, Question
from celery_supervise.policy import Identity, Scope
from celery_supervise.runtime import runtime_of
from tests import pages
from tests.celery.site import Site, got, working
from tests.jobs import Jobs, close
from tests.pages import DOCS

supervise = Supervisor.of(celery_app)
jobs = Jobs(celery_app)
DRIVER = json.loads(os.environ["SITE"])["driver"]


@pytest.fixture(scope="session", autouse=True)
def _tables() -> Iterator[None]:
    call_command("migrate", verbosity=0, run_syncdb=True)
    yield
    jobs.check()
    close(celery_app)
    connections.close_all()


@pytest.fixture(autouse=True)
def _clean() -> None:
    tasks.seen.clear()
    User.objects.all().delete()
    Group.objects.all().delete()


@pytest.fixture(scope="session")
def worker(_tables: None) -> Iterator[None]:
    """A worker in a thread of this process."""
    with closing(redis.Redis.from_url(celery_app.conf.broker_url)) as client:
        site = Site(celery_app, client, celery_app.conf.task_default_queue)
        with working(site):
            yield


def is_there(job_id: str) -> bool:
    """Whether the job has been committed."""
    try:
        supervise.job(job_id)
    except JobNotFound:
        return False
    return True


@contextmanager
def rolled_back() -> Iterator[None]:
    """A transaction of the shop's that comes to nothing."""
    with transaction.atomic():
        yield
        transaction.set_rollback(True)


def user(name: str, *permissions: str, **options: Any) -> User:
    """Somebody who may do this."""
    made = User.objects.create_user(name, password="of-a-test", **options)
    made.user_permissions.set(Permission.objects.filter(codename__in=permissions))
    return made


@pytest.fixture
def asked(worker: None) -> Callable[[], Any]:
    """Brings jobs into the world that have asked."""
    return lambda **options: jobs.parked(tasks.approve.apply_async(**options))


@pytest.fixture
def eager() -> Iterator[None]:
    """Calls run in place."""
    celery_app.conf.task_always_eager = True
    yield
    celery_app.conf.task_always_eager = False


# --- where the database is -------------------------------------------------------------------------------


def test_the_engine_goes_where_django_does() -> None:
    """`supervise_database` takes place, role, password, driver and options of the connection from DATABASES."""
    url = runtime_of(celery_app).engines().url
    given = settings.DATABASES["default"]
    assert (url.database, url.host, url.port, url.username) == (
        given["NAME"],
        given["HOST"],
        given["PORT"],
        given["USER"],
    )
    assert url.drivername == f"postgresql+{DRIVER}"
    assert dict(url.query) == {"application_name": "site"}


def test_the_engine_follows_django_into_its_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where Django's test runner puts another name, all goes there from the next statement on; then back."""
    before = runtime_of(celery_app).engines()
    monkeypatch.setitem(connections["default"].settings_dict, "NAME", "test_shop")
    assert runtime_of(celery_app).engines().url.database == "test_shop"
    monkeypatch.undo()
    assert runtime_of(celery_app).engines().url == before.url


def test_no_connection_stays_in_djangos_tests() -> None:
    """Django drops their database while we could still be connected to it."""
    assert isinstance(runtime_of(celery_app).engines().pool, QueuePool)
    runtime_of(celery_app).engines.dispose()
    mail.outbox = []
    try:
        assert isinstance(runtime_of(celery_app).engines().pool, NullPool)
        assert supervise.jobs()
    finally:
        del mail.outbox
        runtime_of(celery_app).engines.dispose()


def test_djangos_own_options_stay_out_of_the_url(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is no parameter of a connection is left out; `assume_role` cannot be, and is refused."""
    given = {"sslmode": "prefer", "pool": True, "isolation_level": 3, "server_side_binding": True}
    monkeypatch.setitem(connections["default"].settings_dict, "OPTIONS", given)
    assert dict(url_of("default").query) == {"sslmode": "prefer"}
    monkeypatch.setitem(connections["default"].settings_dict, "OPTIONS", {"assume_role": "shop"})
    with pytest.raises(ConfigError, match=r"supervise_database: .*assume_role"):
        url_of("default")


@pytest.mark.parametrize(("alias", "why"), [("nowhere", "no database 'nowhere'"), ("light", "sqlite database")])
def test_an_alias_that_cannot_be_used(alias: str, why: str) -> None:
    """Unknown, or no Postgres: said so, before anything is run."""
    with pytest.raises(ConfigError, match=f"supervise_database: .*{why}"):
        url_of(alias)
    with transaction.atomic(), pytest.raises(InvalidInput, match=f"using: .*{why}"):
        supervise.resume("some", actor="user:ann", using=alias)


# --- in the shop's own transaction -----------------------------------------------------------------------


def test_a_job_is_accepted_with_djangos_commit() -> None:
    """Inside of `atomic()` there is one more statement, on Django's cursor; nobody sees the job before the commit."""
    with transaction.atomic(), CaptureQueriesContext(connection) as run:
        result = tasks.note.apply_async(("a",), supervise={"using": "default"})
        assert len(run) == 1
        assert "INSERT INTO" in run.captured_queries[0]["sql"]
        assert not is_there(result.id)
    assert isinstance(result, AsyncResult)
    assert is_there(result.id)


def test_nothing_is_left_after_djangos_rollback() -> None:
    """No job, no message."""
    with rolled_back():
        result = tasks.note.apply_async(("a",), supervise={"using": "default"})
    assert not is_there(result.id)


def test_a_message_is_sent_after_the_commit_at_once() -> None:
    """By who has committed, as without us: nobody waits for a relay. A message of a rollback is never sent."""
    with transaction.atomic():
        first = tasks.note.apply_async(("a",), supervise={"using": "default"})
        assert published(first) == 0
        with rolled_back():
            tasks.note.apply_async(("b",), supervise={"using": "default"})
        assert len(connection.run_on_commit) == 1
    assert published(first) >= 1


def published(result: AsyncResult[Any]) -> int:
    """How often a job's message has been sent."""
    with connections["default"].cursor() as cursor:
        cursor.execute("SELECT coalesce(max(publish_count), 0) FROM supervise.outbox WHERE job_id = %s", [result.id])
        return int(cursor.fetchone()[0])


def test_a_savepoint_takes_its_job_along() -> None:
    """What is rolled back is a part of the transaction: its job goes, the others stay."""
    with transaction.atomic():
        kept = tasks.note.apply_async(("a",), supervise={"using": "default"})
        with rolled_back():
            gone = tasks.note.apply_async(("b",), supervise={"using": "default"})
    assert (is_there(kept.id), is_there(gone.id)) == (True, False)


def test_without_a_transaction_a_job_is_accepted_at_once() -> None:
    """`using` joins what is open. Where nothing is, the call is as any other."""
    with CaptureQueriesContext(connection) as run:
        result = tasks.note.apply_async(("a",), supervise={"using": "default"})
    assert len(run) == 0
    assert is_there(result.id)


def test_a_refusal_leaves_djangos_transaction_whole() -> None:
    """A second job of one key and another input is refused, and the shop goes on in its transaction."""
    with transaction.atomic():
        tasks.note.apply_async(("a",), supervise={"using": "default", "idempotency_key": "one"})
        again = tasks.note.apply_async(("a",), supervise={"using": "default", "idempotency_key": "one"})
        with pytest.raises(JobExists):
            tasks.note.apply_async(("b",), supervise={"using": "default", "idempotency_key": "one"})
        assert Group.objects.count() == 0
    assert is_there(again.id)


def test_a_database_without_our_tables() -> None:
    """Another alias is joined, too; where our tables are not in it, that is said."""
    with transaction.atomic(using="empty"), pytest.raises(NotMigrated, match="'empty'"):
        tasks.note.apply_async(("a",), supervise={"using": "empty"})


def test_a_session_and_an_alias_are_two_transactions() -> None:
    """One call joins one of them."""
    with runtime_of(celery_app).engines().connect() as other, pytest.raises(InvalidInput, match="both"):
        supervise.resume("some", actor="user:ann", session=other, using="default")


def test_an_answer_comes_with_djangos_commit(asked: Callable[[], Any]) -> None:
    """It waits for the shop's commit, which sends the job, and the job completes."""
    question = asked()
    with transaction.atomic():
        supervise.answer(question.id, "yes", actor="user:ann", using="default")
        Group.objects.create(name="approved")
        assert supervise.question(question.id).status == "pending"
    assert supervise.question(question.id).status == "answered"
    jobs.wait(AsyncResult(question.job_id), State.COMPLETED)


def test_an_answer_goes_with_djangos_rollback(asked: Callable[[], Any]) -> None:
    """The question is as open as before."""
    question = asked()
    with rolled_back():
        supervise.answer(question.id, "yes", actor="user:ann", using="default")
    assert supervise.question(question.id).status == "pending"
    supervise.cancel(question.job_id, actor="user:ann")


def test_refused_answers_are_told_precisely(asked: Callable[[], Any]) -> None:
    """What was read on Django's cursor is what our own connections read: schemas, and times that are instants."""
    question = asked()
    with transaction.atomic():
        with pytest.raises(InvalidAnswer):
            supervise.answer(question.id, "perhaps", actor="user:ann", using="default")
        supervise.answer(question.id, "no", actor="user:ann", using="default")
        with pytest.raises(QuestionClosed) as refused:
            supervise.answer(question.id, "no", actor="user:bob", using="default")
    assert refused.value.answered_at == supervise.question(question.id).answered_at
    assert refused.value.answered_at.utcoffset() is not None


def test_a_pause_ends_with_djangos_commit(asked: Callable[[], Any]) -> None:
    """`resume` joins as `answer` does."""
    paused = tasks.note.apply_async(("a",), countdown=3600)
    supervise.pause(paused.id, actor="user:ann")
    with rolled_back():
        supervise.resume(paused.id, actor="user:ann", using="default")
    assert jobs.job(paused).pause_requested_at is not None
    with transaction.atomic():
        supervise.resume(paused.id, actor="user:ann", using="default")
    assert jobs.job(paused).pause_requested_at is None
    supervise.cancel(paused.id, actor="user:ann")


def test_a_message_follows_the_commit(worker: None) -> None:
    """The relay sends what nobody else has sent: the job runs."""
    with transaction.atomic():
        result = tasks.note.apply_async(("sent",), supervise={"using": "default"})
    assert got(result) == "sent"
    assert tasks.seen.count("sent") == 1


# --- in a body -------------------------------------------------------------------------------------------


def test_a_step_and_the_shops_row_are_one_commit(worker: None) -> None:
    """`self.transaction(using=…)`: what failed after the step has neither; the retry has both, once."""
    assert got(tasks.enrol.delay("staff")) == "staff"
    assert Group.objects.filter(name="staff").count() == 1
    failed = tasks.enrol.delay("guests", fails=True)
    jobs.wait(failed, State.FAILED)
    assert Group.objects.filter(name="guests").count() == 0


def test_a_call_in_djangos_transaction_is_refused(worker: None) -> None:
    """It would commit apart from it: the attempt ends, and says so."""
    result = tasks.careless.delay()
    with pytest.raises(JobFailed, match="InsideTransaction"):
        got(result)


# --- on commit -------------------------------------------------------------------------------------------


def test_a_call_on_commit_is_a_row_in_the_transaction() -> None:
    """As Celery's own `DjangoTask` has it, with a result: nothing is lost between the commit and the call."""
    with transaction.atomic():
        result = tasks.note.delay_on_commit("a")
        other = tasks.note.apply_async_on_commit(("b",), countdown=3600)
        assert not is_there(result.id)
    assert (is_there(result.id), jobs.job(other).state) == (True, State.PENDING)
    with rolled_back():
        gone = tasks.note.delay_on_commit("c")
    assert not is_there(gone.id)
    supervise.cancel(other.id, actor="user:ann")


def test_a_call_on_the_commit_of_another_database() -> None:
    """Our tables are elsewhere: the call waits for the commit, and its result is that of the job that then is."""
    with transaction.atomic(using="empty"):
        result = tasks.note.apply_async_on_commit(("a",), using="empty")
        assert not is_there(result.id)
    assert is_there(result.id)
    with transaction.atomic(using="empty"):
        gone = tasks.note.apply_async_on_commit(("a",), using="empty")
        transaction.set_rollback(True, using="empty")
    assert not is_there(gone.id)


def test_an_eager_call_on_commit_is_as_djangos_own(eager: None) -> None:
    """It runs after the commit, and never after a rollback."""
    with transaction.atomic():
        tasks.note.delay_on_commit("eager")
        assert "eager" not in tasks.seen
    with rolled_back():
        tasks.note.delay_on_commit("gone")
    assert "eager" in tasks.seen
    assert "gone" not in tasks.seen


# --- tables ----------------------------------------------------------------------------------------------


def test_djangos_checks_and_migrations_have_nothing_to_say() -> None:
    """Our models are nobody's to migrate."""
    call_command("check", verbosity=0)
    call_command("makemigrations", check=True, dry_run=True, verbosity=0)


def test_migrate_makes_our_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the database that `supervise_database` names, once; in no other."""
    try:
        for _ in range(2):
            make_tables(using="empty", verbosity=0)
            assert not schema_is_there("empty")
        said = replace(runtime_of(celery_app).settings, database="empty")
        monkeypatch.setattr(apps, "settings", lambda: said)
        for _ in range(2):
            make_tables(using="empty", verbosity=0)
            assert schema_is_there("empty")
    finally:
        connections["empty"].cursor().execute("DROP SCHEMA IF EXISTS supervise CASCADE")


def schema_is_there(alias: str) -> bool:
    """Whether our tables are in it."""
    with connections[alias].cursor() as cursor:
        cursor.execute("SELECT to_regclass('supervise.jobs') IS NOT NULL")
        return bool(cursor.fetchone()[0])


# --- the command -----------------------------------------------------------------------------------------


def test_the_command_is_ours(capsys: pytest.CaptureFixture[str]) -> None:
    """`manage.py supervise show ID` is `celery -A proj supervise show ID`."""
    result = tasks.note.delay("shown")
    with pytest.raises(SystemExit) as left:
        Command().run_from_argv(["manage.py", "supervise", "jobs", "--json", "--settings", "proj.settings"])
    assert left.value.code == 0
    assert result.id in capsys.readouterr().out


def test_the_command_says_how_it_is_called(capsys: pytest.CaptureFixture[str]) -> None:
    """What it tells people to type begins as what they have typed; Celery's own commands name the project."""
    result = tasks.approve.apply_async(countdown=3600)
    supervise.pause(result.id, actor="user:ann")
    with pytest.raises(SystemExit):
        Command().run_from_argv(["manage.py", "supervise", "why", result.id])
    said = capsys.readouterr().out
    assert "python manage.py supervise resume" in said
    assert "celery -A proj" not in said
    supervise.cancel(result.id, actor="user:ann")


def test_the_command_refuses_with_its_exit_code() -> None:
    """As the other does."""
    with pytest.raises(SystemExit) as left:
        Command().run_from_argv(["manage.py", "supervise", "show", "nobodys"])
    assert left.value.code == 1


def test_the_command_is_called_from_python() -> None:
    """`call_command` raises what click raises."""
    with pytest.raises(click.ClickException):
        call_command("supervise", "show", "nobodys", "--json")


# --- who -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("permissions", "scope"),
    [
        (["view_job"], Scope.READONLY),
        (["view_job", "answer_question"], Scope.ANSWERER),
        (["operate_job"], Scope.OPERATOR),
    ],
    ids=["view", "answer", "operate"],
)
def test_a_login_is_what_its_permissions_say(permissions: list[str], scope: Scope) -> None:
    """The widest of them."""
    request = RequestFactory().get("/")
    request.user = user("ann", *permissions)
    assert authenticate(request) == Identity("ann", scope)


def test_nobody_is_who_has_no_permission() -> None:
    """Strangers, users without any of our permissions, and those who were made inactive."""
    request = RequestFactory().get("/")
    assert authenticate(request) is None
    request.user = user("ann")
    assert authenticate(request) is None
    request.user = user("bob", "operate_job", is_active=False)
    assert authenticate(request) is None


def test_a_shop_says_whose_jobs_a_user_has() -> None:
    """By a class of its own."""

    class Tenants(LoginAuthenticator):
        def owner(self, user: Any) -> str | None:
            return f"tenant-of-{user.get_username()}"

    request = RequestFactory().get("/")
    request.user = user("ann", "view_job")
    identity = Tenants()(request)
    assert identity is not None
    assert (identity.actor, identity.owner) == ("user:ann", "tenant-of-ann")


def test_djangos_groups_are_whom_a_question_is_for(asked: Callable[..., Any]) -> None:
    """`to="group:finance"` is for the active members of Django's group."""
    Group.objects.create(name="finance").user_set.add(user("ann"), user("bob", is_active=False))
    assert list(groups_of("user:ann")) == ["finance"]
    assert list(groups_of("user:bob")) == list(groups_of("user:nobody")) == []
    question = asked(kwargs={"to": "group:finance"})
    supervise.answer(question.id, "yes", actor="user:ann")
    jobs.wait(AsyncResult(question.job_id), State.COMPLETED)


# --- the admin -------------------------------------------------------------------------------------------


@pytest.fixture
def operator() -> Client:
    """The browser of somebody who may do everything."""
    return browser("operator", "operate_job")


def browser(name: str, *permissions: str) -> Client:
    """The browser of one of the staff."""
    client = Client()
    client.force_login(user(name, *permissions, is_staff=True))
    return client


def chosen(client: Client, model: str, action: str, *ids: Any) -> str:
    """The page after an action on these rows."""
    reply = client.post(
        f"/admin/supervise/{model}/", {"action": action, "_selected_action": [str(one) for one in ids]}, follow=True
    )
    assert reply.status_code == 200
    return str(reply.content.decode())


def test_jobs_and_questions_are_looked_at(operator: Client, asked: Callable[[], Any]) -> None:
    """In lists, and one by one; what a question asks is read through the service."""
    question = asked()
    for page in ("job/", "job/?state=parked", f"job/?q={question.job_id}", "question/", "question/?status=pending"):
        shown = operator.get(f"/admin/supervise/{page}")
        assert shown.status_code == 200
        assert question.job_id in shown.content.decode()
    one = operator.get(f"/admin/supervise/job/{question.job_id}/change/")
    assert "awaiting_user_answer:ok" in one.content.decode()
    asks = operator.get(f"/admin/supervise/question/{question.id}/change/")
    assert "Pay 3 vendors?" in asks.content.decode()
    supervise.cancel(question.job_id, actor="user:ann")


def test_actions_go_through_the_service(operator: Client) -> None:
    """The log says who; what was refused is told for each job."""
    result = tasks.note.apply_async(("a",), countdown=3600)
    assert "Asked to pause: 1." in chosen(operator, "job", "pause", result.id)
    assert jobs.job(result).pause_requested_at is not None
    assert "Resumed: 1." in chosen(operator, "job", "resume", result.id)
    assert "Asked to cancel: 1." in chosen(operator, "job", "cancel", result.id)
    assert jobs.job(result).state is State.CANCELLED
    # the relay's is that Celery was told of the end
    assert {entry.actor for entry in jobs.entries(result)} - {"relay"} == {"producer", "user:operator"}
    assert "already" in chosen(operator, "job", "resume", result.id)


def test_a_question_is_taken_back(operator: Client, asked: Callable[[], Any]) -> None:
    """And the job asks anew."""
    question = asked()
    assert "Taken back: 1." in chosen(operator, "question", "withdraw", question.id)
    assert jobs.parked(AsyncResult(question.job_id)).id != question.id
    supervise.cancel(question.job_id, actor="user:ann")


def test_who_may_only_look_cannot_act() -> None:
    """The actions are not offered, and not done."""
    result = tasks.note.apply_async(("a",), countdown=3600)
    looker = browser("looker", "view_job")
    assert 'value="cancel"' not in looker.get("/admin/supervise/job/").content.decode()
    chosen(looker, "job", "cancel", result.id)
    assert jobs.job(result).state is State.PENDING
    supervise.cancel(result.id, actor="user:ann")


def test_who_has_no_permission_sees_nothing() -> None:
    """Nor that there is anything."""
    stranger = browser("stranger", "view_user")
    assert stranger.get("/admin/supervise/job/").status_code == 403
    assert "supervise" not in stranger.get("/admin/").content.decode()


def test_rows_cannot_be_written(operator: Client) -> None:
    """Not by the admin's forms, and not by the models."""
    result = tasks.note.apply_async(("a",), countdown=3600)
    page = f"/admin/supervise/job/{result.id}"
    assert operator.post(f"{page}/change/", {"state": "completed"}).status_code == 403
    assert operator.post(f"{page}/delete/", {"post": "yes"}).status_code == 403
    assert operator.get("/admin/supervise/job/add/").status_code == 403
    row = Job.objects.get(id=result.id)
    for change in (row.save, row.delete, Question(id=None).save):
        with pytest.raises(TypeError):
            change()
    supervise.cancel(result.id, actor="user:ann")


def test_another_namespace_is_not_shown(operator: Client) -> None:
    """The admin has this project's jobs alone."""
    result = tasks.note.apply_async(("a",), countdown=3600)
    assert result.id in operator.get("/admin/supervise/job/").content.decode()
    celery_app.conf.supervise_namespace = "other"
    try:
        assert result.id not in operator.get("/admin/supervise/job/").content.decode()
    finally:
        celery_app.conf.supervise_namespace = "default"
    supervise.cancel(result.id, actor="user:ann")


# --- the documentation -----------------------------------------------------------------------------------


def test_the_page_runs(asked: Callable[[], Any]) -> None:
    """The code in docs/django.md, in order."""
    question = asked()
    names = {
        "__name__": "proj.page",
        "INSTALLED_APPS": [],
        "book_it": str,
        "supervise": supervise,
        "question_id": question.id,
    }
    for block in pages.blocks(DOCS / "django.md", "python"):
        exec(block.compiled(), names)  # noqa: S102  # our own page
    assert names["INSTALLED_APPS"] == ["celery_supervise.contrib.django"]
    assert is_there(names["result"].id)
    assert Order.objects.get().approved_by == "ann"
    assert supervise.question(question.id).answered_by == "user:ann"
    assert names["Tenants"]().owner(User(username="ann")) == "ann"


# --- in a shop's tests -----------------------------------------------------------------------------------


class InATestCase(TestCase):
    """What a `TestCase` has: a transaction that never commits."""

    def test_a_job_is_seen_in_the_tests_transaction(self) -> None:
        """It is a row on Django's own connection; nobody else sees it, and the end of the test takes it back."""
        for result in (tasks.note.apply_async(("a",), supervise={"using": "default"}), tasks.note.delay_on_commit("b")):
            assert Job.objects.get(id=result.id).task == "proj.tasks.note"
            assert not is_there(result.id)

    def test_an_eager_call_is_captured(self) -> None:
        """As Django's own: `captureOnCommitCallbacks` runs it."""
        celery_app.conf.task_always_eager = True
        try:
            with self.captureOnCommitCallbacks(execute=True) as calls:
                tasks.note.delay_on_commit("captured")
        finally:
            celery_app.conf.task_always_eager = False
        assert len(calls) == 1
        assert "captured" in tasks.seen

    def test_a_step_runs_in_the_tests_transaction(self) -> None:
        """Called as a function or eagerly a body records nothing, and may run inside of any transaction."""
        tasks.careless()
        assert tasks.enrol("staff") == "staff"
        assert Group.objects.filter(name="staff").exists()


class InATransactionTestCase(TransactionTestCase):
    """What a `TransactionTestCase` has: it commits, and Django empties its own tables afterwards."""

    available_apps = ()

    def test_a_job_stays(self) -> None:
        """Our tables are none of Django's: jobs are kept, and `migrate` has nothing to do for them."""
        with transaction.atomic():
            kept.append(tasks.note.delay_on_commit("a").id)
        assert is_there(kept[-1])


kept: list[str] = []


def test_djangos_flush_leaves_jobs() -> None:
    """After a `TransactionTestCase`, which this one follows."""
    assert all(map(is_there, kept))
    call_command("flush", verbosity=0, interactive=False)
    assert kept
    assert all(map(is_there, kept))

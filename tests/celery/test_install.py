"""How the library comes into an app: by `base=` alone. What it adds, what it refuses, what it leaves alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from celery import Celery, Task

from celery_supervise import ConfigError, Options, SupervisedTask, Supervisor
from celery_supervise.runtime import runtime_of, settings_of
from tests.celery.site import Site
from tests.jobs import close

URL = "postgresql://nobody@127.0.0.1:1/nothing"


@pytest.fixture
def make() -> Iterator[Callable[..., Celery]]:
    """Makes apps."""
    apps = []

    def new(task_cls: Any = None, **settings: Any) -> Celery:
        app = Celery("made", broker="memory://", backend="cache+memory://", set_as_current=False, task_cls=task_cls)
        app.conf.update({"supervise_database_url": URL, **settings})
        apps.append(app)
        return app

    yield new
    for app in apps:
        close(app)


def noop() -> None:
    """A task."""


def supervised(app: Celery, **options: Any) -> Any:
    """A supervised task."""
    return app.task(base=SupervisedTask, shared=False, name="shop.noop", **options)(noop)


# --- beat ------------------------------------------------------------------------------------------------


def schedule(app: Celery) -> dict[str, Any]:
    """The app's beat entries, once it is finalized."""
    supervised(app)
    app.finalize()
    return dict(app.conf.beat_schedule)


def test_beat_entries_appear(make: Callable[..., Celery]) -> None:
    """Sweep and relay run from beat without a line in the shop's schedule, and no run piles up behind another."""
    entries = schedule(make(supervise_sweep_seconds=7, supervise_queue="ops"))
    assert set(entries) == {"supervise.sweep", "supervise.relay"}
    sweep = entries["supervise.sweep"]
    assert (sweep["task"], sweep["schedule"]) == ("celery_supervise.sweep", 7)
    assert (sweep["options"]["expires"], sweep["options"]["queue"]) == (7, "ops")
    relay = entries["supervise.relay"]
    assert (relay["task"], relay["schedule"], relay["options"]["expires"]) == ("celery_supervise.relay", 5, 5)


def test_beat_entries_of_the_shop_win(make: Callable[..., Celery]) -> None:
    """An entry of the same name in the shop's schedule stays what it is; others stay, too."""
    own = {"task": "celery_supervise.sweep", "schedule": timedelta(minutes=1)}
    daily = {"task": "shop.noop", "schedule": timedelta(days=1)}
    entries = schedule(make(beat_schedule={"supervise.sweep": own, "daily": daily}))
    assert entries["supervise.sweep"] == own
    assert set(entries) == {"supervise.sweep", "supervise.relay", "daily"}


def test_no_beat_entries_where_they_are_not_wanted(make: Callable[..., Celery]) -> None:
    """`supervise_beat=False`."""
    assert schedule(make(supervise_beat=False)) == {}


def test_beat_entries_appear_in_a_finalized_app(make: Callable[..., Celery]) -> None:
    """A supervised task that is registered late brings them, too."""
    app = make()
    app.finalize()
    supervised(app)
    assert set(app.conf.beat_schedule) == {"supervise.sweep", "supervise.relay"}


def test_the_tasks_of_beat_do_their_work(site: Site) -> None:
    """What beat sends runs in any worker: here, called as a worker would."""
    task = site.app.task(base=SupervisedTask, shared=False, name="shop.noop")(noop)
    result = task.apply_async(countdown=0.2)
    assert site.messages() == []
    run = site.app.tasks["celery_supervise.relay"]
    for _ in range(200):
        run()
        if site.messages():
            break
    assert [message["headers"]["id"] for message in site.messages()] == [result.id]
    assert site.app.tasks["celery_supervise.sweep"]() is None


def test_the_tasks_of_beat_are_plain(make: Callable[..., Celery]) -> None:
    """They are no jobs themselves, and their results are of no interest."""
    app = make()
    supervised(app)
    for name in ("celery_supervise.sweep", "celery_supervise.relay"):
        assert not isinstance(app.tasks[name], SupervisedTask)
        assert app.tasks[name].ignore_result


# --- settings --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"supervise_leese_seconds": 60}, "did you mean supervise_lease_seconds"),
        ({"supervise_lease_seconds": "60"}, "must be a number"),
        ({"supervise_lease_seconds": 10, "supervise_heartbeat_seconds": 5}, "not well below"),
        ({"supervise_submit": "later"}, "one of row, worker"),
        ({"supervise_database_url": None}, "is not set"),
        ({"supervise_database_url": "mysql://here/there"}, "cannot be used"),
    ],
)
def test_wrong_settings_are_refused(make: Callable[..., Celery], settings: dict[str, Any], told: str) -> None:
    """At the first use, naming the setting and what is wrong; a typo names its neighbour."""
    app = make(**settings)
    task = supervised(app)
    with pytest.raises(ConfigError, match=told):
        task.delay()


def test_old_style_names(make: Callable[..., Celery]) -> None:
    """Upper-case settings of an old-style configuration are read, and their typos found."""
    app = make()
    app.conf.update(SUPERVISE_LEASE_SECONDS=90)
    assert settings_of(app).lease_seconds == 90
    app.conf.update(SUPERVISE_LEASE=90)
    with pytest.raises(ConfigError, match="SUPERVISE_LEASE:"):
        settings_of(app)


def test_settings_of_the_shop_are_left_alone(make: Callable[..., Celery]) -> None:
    """Nothing app-wide changes but the beat schedule."""
    before = {key: make().conf[key] for key in ("task_acks_late", "worker_prefetch_multiplier", "task_routes")}
    app = make()
    supervised(app)
    app.finalize()
    assert {key: app.conf[key] for key in before} == before


def test_one_runtime_an_app(make: Callable[..., Celery]) -> None:
    """`Supervisor.of(app)` is one object, of its own for each app."""
    one, two = make(), make()
    assert Supervisor.of(one) is Supervisor.of(one)
    assert Supervisor.of(one) is not Supervisor.of(two)
    assert runtime_of(one).supervisor is Supervisor.of(one)


# --- task options ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "option", [{"acks_late": False}, {"reject_on_worker_lost": False}, {"acks_on_failure_or_timeout": False}]
)
def test_options_that_would_lose_jobs_are_refused(make: Callable[..., Celery], option: dict[str, Any]) -> None:
    """Where the task is made, naming it and the option."""
    with pytest.raises(ConfigError, match=rf"shop\.noop: {next(iter(option))}: must stay True"):
        supervised(make(), **option).delay()


def test_an_app_wide_default_loses_no_jobs(make: Callable[..., Celery]) -> None:
    """`task_acks_late = False` for the shop's other tasks does not reach a supervised one."""
    task = supervised(make(task_acks_late=False, task_reject_on_worker_lost=False, task_track_started=True))
    assert (task.acks_late, task.reject_on_worker_lost, task.track_started) == (True, True, False)


@pytest.mark.parametrize("wrong", [{"version": 2}, "fast"])
def test_wrong_task_options_are_refused(make: Callable[..., Celery], wrong: Any) -> None:
    """`supervise=` takes an Options, which checks what it is given."""
    with pytest.raises(ConfigError, match="Options"):
        supervised(make(), supervise=wrong).delay()


def test_options_of_a_task_reach_its_jobs(site: Site) -> None:
    """Deadline and version of the task's decorator are the job's."""
    options = Options(version=3, deadline=timedelta(hours=1))
    task = site.app.task(base=SupervisedTask, shared=False, name="shop.noop", supervise=options)(noop)
    job = site.job(task.delay())
    assert job.task_version == 3
    assert job.deadline is not None
    assert job.deadline - job.created_at == timedelta(hours=1)


# --- all tasks of an app ---------------------------------------------------------------------------------


def test_all_tasks_of_an_app(make: Callable[..., Celery]) -> None:
    """With `task_cls=SupervisedTask` every task of the shop is supervised; Celery's own work as before."""
    app = make(task_cls=SupervisedTask)
    task = app.task(shared=False, name="shop.echo")(noop)
    assert isinstance(app.tasks["shop.echo"], SupervisedTask)
    assert task.apply().get() is None
    app.tasks["celery.backend_cleanup"].apply(throw=True)
    assert app.tasks["celery.chord_unlock"].is_plain()


def test_a_task_without_base_is_not_touched(make: Callable[..., Celery]) -> None:
    """Other tasks of the app are Celery's own."""
    app = make()
    supervised(app)
    other = app.task(shared=False, name="shop.other")(noop)
    other.apply()
    assert type(app.tasks["shop.other"]).__mro__[1] is app.Task
    assert issubclass(app.Task, Task)

"""What operators ask the API: whether it works, its numbers; and what it says when a server is away."""

from __future__ import annotations

from collections.abc import Callable
from urllib.parse import urlsplit

from celery_supervise import State
from example_project import embedded
from example_project.machine import HOST
from tests.celery.site import working
from tests.proxy import Proxy
from tests.tools import wait_for
from tests.web.conftest import Api
from tests.web.test_jobs import problem, submit


def test_health(api: Api) -> None:
    """Red while nobody sweeps, green with a worker; it names nobody's jobs and needs no login."""
    nobody = api.client()
    assert nobody.get("/health").json() == {"status": "degraded", "checks": {"database": "ok", "sweeps": "degraded"}}
    with working(api.site):
        wait_for(lambda: nobody.get("/health").status_code == 200, what="the sweeps")
        assert nobody.get("/health").json()["status"] == "ok"


def test_metrics(api: Api) -> None:
    """The numbers of the installation, for whoever may look."""
    submit(api.person("ann"))
    told = api.person("prometheus", scope="readonly").get("/metrics")
    assert told.headers["content-type"].startswith("text/plain")
    assert 'supervise_jobs{namespace="default",state="pending"} 1.0' in told.text
    problem(api.client().get("/metrics"), 401, "unauthenticated")


def test_s56_the_broker_is_away(open_api: Callable[..., Api], redis_server: embedded.Redis) -> None:
    """Everything answers at once; jobs are accepted, and go out when it is back."""
    with Proxy((HOST, redis_server.port)) as proxy:
        api = open_api(broker_url=proxy.url(redis_server.url))
        ann = api.person("ann")
        with proxy.refusing():
            jobs = [submit(ann) for _ in range(3)]
            paused = ann.post(f"/jobs/{jobs[0]['id']}/pause", json={"expected_generation": 1})
            assert paused.status_code == 202
            assert ann.get("/jobs").json()["total_count"] == 3
            assert {api.site.supervise.job(job["id"]).state for job in jobs} == {State.PENDING}
        with working(api.site):
            ended = [f"/jobs/{job['id']}" for job in jobs[1:]]
            wait_for(lambda: all(ann.get(at).json()["state"] == "completed" for at in ended), what="their ends")


def test_the_database_is_away(open_api: Callable[..., Api], database_url: str) -> None:
    """503 with when to try again, and nothing of what Postgres says; then everything works as before."""
    parts = urlsplit(database_url)
    with Proxy((HOST, int(parts.port or 0))) as proxy:
        api = open_api(supervise_database_url=proxy.url(database_url))
        ann, nobody = api.person("ann"), api.client()
        job = submit(ann)
        proxy.cut()
        with proxy.refusing():
            for response in (
                ann.get("/jobs"),
                ann.get(f"/jobs/{job['id']}"),
                ann.post(f"/jobs/{job['id']}/pause", json={"expected_generation": 1}),
                ann.post("/jobs", json={"task": "shop.count"}),
            ):
                problem(response, 503, "unavailable")
                assert response.headers["retry-after"] == "5"
                assert "detail" not in response.json()
            assert nobody.get("/health").json() == {"status": "down", "checks": {"database": "down"}}
        assert ann.get(f"/jobs/{job['id']}").json()["generation"] == 1

"""Who may come in, and what those are told who may not."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import uuid4

import httpx
import pytest
from fastapi import FastAPI

from celery_supervise.errors import ConfigError, InvalidInput
from celery_supervise.policy import Identity, Scope
from celery_supervise.web import TokenAuthenticator, TrustedProxy, create_app, everybody, first_of
from celery_supervise.web.login import OPEN
from tests.celery.site import Site, working
from tests.tools import wait_for
from tests.web.conftest import Api, define, served
from tests.web.test_jobs import problem, submit

WITHOUT_DATE = ("date",)


def routes(api: Api) -> list[tuple[str, str]]:
    """Every method and path that the API's description has."""
    described = api.person("walker", scope="operator").get("/openapi.json").json()
    assert "paths" in described, described
    return [(method.upper(), path) for path, of in described["paths"].items() for method in of]


def told(response: httpx.Response) -> tuple[int, bytes, dict[str, str]]:
    """All of a response but the time of day."""
    headers = {name: value for name, value in response.headers.items() if name not in WITHOUT_DATE}
    return response.status_code, response.content, headers


def test_s89_no_route_without_a_login(api: Api) -> None:
    """Every route, in every spelling, and what is none: 401, but for a written list."""
    nobody, forged = api.client(), api.client({"Authorization": "Bearer sup_guessed"})
    walked = routes(api)
    assert len(walked) > 20
    for method, path in walked:
        filled = path.replace("{job_id}", "x").replace("{question_id}", str(uuid4())).replace("{action}", "cancel")
        for spelled in (filled, f"{filled}/", f"/{filled}", filled.replace("/", "/./", 1), filled.upper()):
            for client in (nobody, forged):
                response = client.request(method, spelled)
                if response.request.url.path in OPEN:
                    assert response.json()["checks"]
                else:
                    problem(response, 401, "unauthenticated")
    for path in ("/", "/docs", "/redoc", "/openapi.json", "/static/x", "/metrics", "/%68ealth/../jobs", "/health/"):
        for method in ("GET", "POST", "OPTIONS", "DELETE", "TRACE"):
            assert nobody.request(method, path).status_code == 401, (method, path)


def test_s89_mounted_under_another_application(open_api: Any) -> None:
    """Wherever it is mounted, its login stays, and its addresses are right."""
    api: Api = open_api()
    outer = FastAPI()
    outer.mount("/supervise", create_app(api.site.app, authenticate=everybody(Identity("ann", Scope.OWNER, "ann"))))
    closed = create_app(api.site.app, authenticate=lambda _request: None)
    outer.mount("/closed", closed)
    with served(outer) as url, httpx.Client(base_url=url) as client:
        accepted = client.post("/supervise/jobs", json={"task": "shop.count"})
        assert accepted.headers["location"] == f"/supervise/jobs/{accepted.json()['id']}"
        assert client.get(accepted.headers["location"]).status_code == 200
        for path in ("/closed/jobs", "/closed/", "/closed/health/", "/closed/openapi.json"):
            assert client.get(path).status_code == 401, path
        assert client.get("/closed/health").status_code in {200, 503}


def test_s25_another_owners_job_is_not_there(api: Api) -> None:
    """On every route, with whatever body and generation: byte for byte what is told of an id that nobody has."""
    ann, bob = api.person("ann"), api.person("bob")
    with working(api.site):
        job = submit(ann, "shop.pay", args=[7])
        wait_for(lambda: ann.get("/questions").json()["questions"], what="a question")
    (question,) = ann.get("/questions").json()["questions"]
    before = ann.get(f"/jobs/{job['id']}/log").json()["total_count"]
    bodies: list[dict[str, Any]] = [
        {},
        {"content": b"{"},
        {"json": {"expected_generation": 1}},
        {"json": {"expected_generation": question["generation"], "value": "yes", "seen": question["digest"]}},
        {"content": b"x", "headers": {"Content-Type": "text/plain"}},
    ]
    walked = 0
    for method, path in routes(api):
        if "{job_id}" not in path and "{question_id}" not in path:
            continue
        theirs = path.replace("{job_id}", job["id"]).replace("{question_id}", question["id"])
        absent = path.replace("{job_id}", str(uuid4())).replace("{question_id}", str(uuid4()))
        for body in bodies if method == "POST" else bodies[:1]:
            foreign = bob.request(method, theirs, **body)
            problem(foreign, 404, "not_found")
            assert told(foreign) == told(bob.request(method, absent, **body)), (method, path, body)
            walked += 1
    assert walked > 40
    assert ann.get(f"/jobs/{job['id']}/log").json()["total_count"] == before
    assert bob.get("/jobs").json()["total_count"] == bob.get("/questions").json()["total_count"] == 0
    assert bob.get("/jobs", params={"text": job["id"]}).json()["total_count"] == 0


def test_scopes(api: Api) -> None:
    """Who may only look is told so where they may see; who may answer may not steer."""
    ann = api.person("ann")
    job = submit(ann)
    reader, answerer = api.person("r", scope="readonly"), api.person("a", scope="answerer")
    for person in (reader, answerer):
        assert person.get(f"/jobs/{job['id']}").status_code == 200
        problem(person.post(f"/jobs/{job['id']}/pause", json={"expected_generation": 1}), 403, "forbidden")
        problem(person.post("/jobs", json={"task": "shop.count"}), 403, "forbidden")
        problem(person.post("/bulk/cancel", json={"targets": []}), 403, "forbidden")
    assert ann.get(f"/jobs/{job['id']}").json()["generation"] == 1


def test_tokens(api: Api) -> None:
    """Kept as a hash, good until they expire or are taken back; found by nothing but the secret."""
    token, secret = api.tokens.make("ci", subject="ci", scope="owner", owner="acme", lasts=timedelta(hours=1))
    client = api.client({"Authorization": f"bearer {secret}"})
    assert client.get("/jobs").status_code == 200
    (kept,) = [one for one in api.tokens.all() if one.id == token.id]
    assert (kept.owner, kept.scope, kept.used_at is not None) == ("acme", Scope.OWNER, True)
    with api.site.runtime.engines().begin() as connection:
        stored = connection.exec_driver_sql("SELECT t::text FROM supervise.api_tokens AS t").scalars().all()
        assert not any(secret.removeprefix("sup_") in row for row in stored)
        connection.exec_driver_sql(
            "UPDATE supervise.api_tokens SET expires_at = clock_timestamp() - interval '1 s' WHERE name = 'ci'"
        )
    problem(client.get("/jobs"), 401, "unauthenticated")
    other, secret = api.tokens.make("web", subject="web", scope="readonly")
    client = api.client({"Authorization": f"Bearer {secret}"})
    assert client.get("/jobs").status_code == 200
    assert api.tokens.revoke(other.id).revoked_at is not None
    problem(client.get("/jobs"), 401, "unauthenticated")
    for scope, subject in (("owner", "x"), ("king", "x"), ("readonly", " ")):
        with pytest.raises(InvalidInput):
            api.tokens.make("x", scope=scope, subject=subject)
    with pytest.raises(InvalidInput):
        api.tokens.revoke("x")


def test_a_trusted_proxy(open_site: Any) -> None:
    """Its header counts from its own addresses only, and only once."""
    site: Site = open_site()
    define(site.app)
    trusted = TrustedProxy("X-User", sources=["127.0.0.0/8"], owner_header="X-Tenant")
    elsewhere = TrustedProxy("X-User", sources=["10.0.0.0/8", "unix"])
    with served(create_app(site.app, authenticate=trusted)) as url, httpx.Client(base_url=url) as client:
        known = {"X-User": "ann", "X-Tenant": "acme"}
        assert client.post("/jobs", json={"task": "shop.count"}, headers=known).json()["owner_id"] == "acme"
        for headers in (
            [("X-User", "ann")],
            [("X-User", "ann"), ("X-User", "bob"), ("X-Tenant", "acme")],
            [("X-User", ""), ("X-Tenant", "acme")],
            [("X-User", "a" * 300), ("X-Tenant", "acme")],
        ):
            assert client.get("/jobs", headers=headers).status_code == 401, headers
    with served(create_app(site.app, authenticate=elsewhere)) as url, httpx.Client(base_url=url) as client:
        assert client.get("/jobs", headers={"X-User": "ann"}).status_code == 401
    with pytest.raises(ConfigError):
        TrustedProxy("X-User", sources=[])


def test_the_first_that_knows_somebody(api: Api) -> None:
    """A proxy's people come by their header, programs by their tokens, others not at all."""
    _, secret = api.tokens.make("ci", subject="ci", scope="readonly")
    known = first_of(TrustedProxy("X-User", sources=["127.0.0.0/8"]), TokenAuthenticator(api.tokens))
    web = create_app(api.site.app, authenticate=known)
    with served(web) as url, httpx.Client(base_url=url) as client:
        for headers, status in (({"X-User": "ann"}, 200), ({"Authorization": f"Bearer {secret}"}, 200), ({}, 401)):
            assert client.get("/jobs", headers=headers).status_code == status


def test_looking_changes_nothing(api: Api) -> None:
    """GET, HEAD and OPTIONS of every route leave every row as it was."""
    ann = api.person("ann")
    job = submit(ann)

    def rows() -> list[Any]:
        with api.site.runtime.engines().connect() as connection:
            tables = ("jobs", "log", "outbox", "attempts", "questions", "operations")
            return [
                connection.exec_driver_sql(f"SELECT t::text FROM supervise.{table} AS t ORDER BY 1").scalars().all()
                for table in tables
            ]

    before = rows()
    for _, path in routes(api):
        filled = path.replace("{job_id}", job["id"]).replace("{question_id}", str(uuid4())).replace("{action}", "pause")
        if not filled.endswith("/events"):
            for method in ("GET", "HEAD", "OPTIONS"):
                assert ann.request(method, filled).status_code != 500
    assert rows() == before

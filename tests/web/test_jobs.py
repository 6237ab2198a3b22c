"""Jobs over HTTP: submitted, looked at, steered; what is refused, and how."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from celery_supervise import State
from tests.celery.site import working
from tests.tools import wait_for
from tests.web.conftest import Api

JSON = {"Content-Type": "application/json"}


def submit(person: httpx.Client, task: str = "shop.count", **body: Any) -> dict[str, Any]:
    """A job, accepted."""
    response = person.post("/jobs", json={"task": task, **body})
    assert response.status_code == 202, response.text
    found: dict[str, Any] = response.json()
    return found


def problem(response: httpx.Response, status: int, code: str) -> dict[str, Any]:
    """A refusal, as RFC 9457 has it."""
    assert (response.status_code, response.headers["content-type"]) == (status, "application/problem+json")
    body: dict[str, Any] = response.json()
    assert (body["status"], body["code"]) == (status, code)
    assert body["type"] == "about:blank"
    assert body["title"]
    return body


def test_a_job_from_submit_to_its_result(api: Api) -> None:
    """202 with where to look; the job runs; its result, attempts, checkpoints and log are there."""
    ann = api.person("ann")
    accepted = ann.post("/jobs", json={"task": "shop.count", "kwargs": {"most": 2}})
    job = accepted.json()
    assert (accepted.status_code, job["state"], job["owner_id"]) == (202, "pending", "ann")
    assert (accepted.headers["location"], accepted.headers["retry-after"]) == (f"/jobs/{job['id']}", "1")
    with working(api.site):
        wait_for(lambda: ann.get(f"/jobs/{job['id']}").json()["state"] == "completed", what="its end")
    assert ann.get(f"/jobs/{job['id']}/result").json() == {"result": 2, "unreadable": None}
    names = [one["name"] for one in ann.get(f"/jobs/{job['id']}/checkpoints").json()["checkpoints"]]
    assert names == ["step 0", "step 1"]
    (attempt,) = ann.get(f"/jobs/{job['id']}/attempts").json()["attempts"]
    assert attempt["outcome"] == "completed"
    log = ann.get(f"/jobs/{job['id']}/log", params={"limit": 2}).json()
    assert (log["returned_count"], log["truncated"]) == (2, True)
    assert log["withheld_count"] == log["total_count"] - 2
    assert ann.get(f"/jobs/{job['id']}/why").json()["state"] == "completed"
    (submitted,) = ann.get(f"/jobs/{job['id']}/log", params={"event": "submitted"}).json()["entries"]
    assert submitted["sequence_num"] == 1


def test_s86_the_status_is_there_at_once(api: Api) -> None:
    """The URL of a 202 works as it is given, and shows no older generation; an id that nobody has is a 404."""
    ann = api.person("ann")
    for _ in range(20):
        accepted = ann.post("/jobs", json={"task": "shop.count"})
        seen = ann.get(accepted.headers["location"])
        assert seen.status_code == 200
        assert seen.json()["generation"] >= accepted.json()["generation"]
    problem(ann.get("/jobs/4cf4ae7c-0000-4000-8000-000000000000"), 404, "not_found")


def test_s20_one_key_one_job(api: Api) -> None:
    """Thirty at once with one key make one job; another body is refused; another owner gets a job of their own."""
    ann, bob = api.person("ann"), api.person("bob")
    key = {"Idempotency-Key": "order 7"}

    def make(_: int) -> httpx.Response:
        return ann.post("/jobs", json={"task": "shop.count", "args": [1]}, headers=key)

    with ThreadPoolExecutor(10) as pool:
        made = list(pool.map(make, range(30)))
    assert {one.status_code for one in made} == {202}
    (job_id,) = {one.json()["id"] for one in made}
    assert len(api.site.supervise.log(job_id, events=["submitted"]).entries) == 1
    other = ann.post("/jobs", json={"task": "shop.count", "args": [2]}, headers=key)
    assert job_id in problem(other, 422, "key_reused")["detail"]
    theirs = bob.post("/jobs", json={"task": "shop.count", "args": [1]}, headers=key)
    assert theirs.status_code == 202
    assert theirs.json()["id"] != job_id
    elsewhere = ann.post("/jobs", json={"task": "shop.pay", "args": [1]}, headers=key)
    assert elsewhere.status_code == 202
    assert elsewhere.json()["id"] != job_id


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"task": "shop.hidden"}, "task"),
        ({"task": "shop.nothing"}, "task"),
        ({"task": "shop.count", "args": [1, 2]}, "args"),
        ({"task": "shop.count", "kwargs": {"mots": 2}}, "args"),
        ({"task": "shop.count", "args": ["7"]}, "most"),
        ({"task": "shop.pay"}, "args"),
        ({"task": "shop.pay", "args": [7], "kwargs": {"amount": 1.5}}, "amount"),
        ({"task": "shop.count", "owner": "bob"}, "owner"),
        ({"task": "shop.count", "deadline": "2030-01-01T00:00:00"}, "deadline"),
        ({"task": "shop.count", "deadline": "2001-01-01T00:00:00Z"}, "deadline"),
        ({"task": "shop.count", "deadline_seconds": -1}, "deadline_seconds"),
        ({"task": "shop.count", "kwargs": []}, "kwargs"),
        ({"task": "shop.pay", "args": [1, "nul \0"]}, None),
    ],
    ids=lambda part: json.dumps(part)[:40] if isinstance(part, dict) else str(part),
)
def test_what_cannot_be_submitted(api: Api, body: dict[str, Any], field: str | None) -> None:
    """A task that is not meant for it, arguments that it does not take, a field that there is not: named, not made."""
    ann = api.person("ann")
    response = ann.post("/jobs", json=body)
    if field is None:  # a text of a shop's own arguments is whatever the shop says
        assert response.status_code == 202
        return
    assert list(problem(response, 422, "invalid")["errors"]) == [field]
    assert ann.get("/jobs").json()["total_count"] == 0


def test_pause_resume_cancel(api: Api) -> None:
    """Each says what came of it, moves the generation, and takes only the one that was seen."""
    ann = api.person("ann")
    job = submit(ann)
    at = f"/jobs/{job['id']}"
    paused = ann.post(f"{at}/pause", json={"expected_generation": 1})
    assert (paused.status_code, paused.json()["said"]) == (202, "it will not start until resumed")
    stale = problem(ann.post(f"{at}/cancel", json={"expected_generation": 1}), 409, "stale_generation")
    assert (stale["generation"], stale["state"]) == (2, "pending")
    resumed = ann.post(f"{at}/resume", json={"expected_generation": 2})
    assert (resumed.status_code, resumed.json()["generation"]) == (202, 3)
    cancelled = ann.post(f"{at}/cancel", json={"expected_generation": 3, "why": "ordered twice"})
    assert (cancelled.status_code, cancelled.json()["state"]) == (202, "cancelled")
    (entry,) = ann.get(f"{at}/log", params={"event": "cancelled"}).json()["entries"]
    assert entry["actor"] == "user:ann"


@pytest.mark.parametrize("verb", ["pause", "resume", "cancel", "extend"])
def test_s42_what_has_ended_stays_so(api: Api, verb: str) -> None:
    """A request to a job that has ended is refused with its state; generation and log stay."""
    ann = api.person("ann")
    job = submit(ann)
    ended = ann.post(f"/jobs/{job['id']}/cancel", json={"expected_generation": 1}).json()
    before = ann.get(f"/jobs/{job['id']}")
    more = {"by_seconds": 60.0} if verb == "extend" else {}
    body = {"expected_generation": ended["generation"], **more}
    refused = problem(ann.post(f"/jobs/{job['id']}/{verb}", json=body), 409, "already_final")
    assert refused["state"] == "cancelled"
    after = ann.get(f"/jobs/{job['id']}")
    assert (after.json()["generation"], after.headers["etag"]) == (before.json()["generation"], before.headers["etag"])


def test_extend_and_rerun(api: Api) -> None:
    """A deadline is moved; an ended job is run again, once, as a new job."""
    ann = api.person("ann")
    job = submit(ann, deadline_seconds=3600.0)
    at = f"/jobs/{job['id']}"
    extended = ann.post(f"{at}/extend", json={"expected_generation": 1, "by_seconds": 60.0})
    assert (extended.status_code, extended.json()["changed"]) == (202, True)
    assert ann.get(at).json()["deadline"] > job["deadline"]
    cancelled = ann.post(f"{at}/cancel", json={"expected_generation": 2}).json()
    api.site.runtime.relay.settle_once()
    again = ann.post(f"{at}/rerun", json={"expected_generation": cancelled["generation"]})
    assert (again.status_code, again.json()["rerun_of"]) == (202, job["id"])
    assert again.headers["location"] == f"/jobs/{again.json()['id']}"
    twice = ann.post(f"{at}/rerun", json={"expected_generation": cancelled["generation"]})
    assert problem(twice, 409, "already_rerun")["successor"] == again.json()["id"]


def test_s90_typos_are_refused(api: Api) -> None:
    """Another name, another type, a key twice, another content type, a parameter that there is not: nothing changes."""
    ann = api.person("ann")
    job = submit(ann)
    at = f"/jobs/{job['id']}"
    problem(ann.post(f"{at}/pause", json={}), 428, "precondition_required")
    problem(ann.post(f"{at}/pause", json={"generation": 1}), 428, "precondition_required")
    named = problem(ann.post(f"{at}/pause", json={"expected_generation": 1, "wyh": "x"}), 422, "invalid")
    assert list(named["errors"]) == ["wyh"]
    typed = problem(ann.post(f"{at}/pause", json={"expected_generation": "1"}), 422, "invalid")
    assert list(typed["errors"]) == ["expected_generation"]
    twice = '{"expected_generation": 1, "expected_generation": 2}'
    problem(ann.post(f"{at}/pause", content=twice, headers=JSON), 400, "unparseable")
    for text in ("", "{", '{"expected_generation": NaN}', '{"expected_generation": 1e400}', "[" * 100_000, "\xff"):
        content = text.encode("latin-1")
        problem(ann.post(f"{at}/pause", content=content, headers=JSON), 400, "unparseable")
    plain = {"Content-Type": "text/plain"}
    problem(ann.post(f"{at}/pause", content='{"expected_generation": 1}', headers=plain), 415, "unsupported_media_type")
    form = ann.post(f"{at}/pause", data={"expected_generation": "1"})
    problem(form, 415, "unsupported_media_type")
    extra = problem(ann.get(at, params={"verbose": "1"}), 422, "invalid")
    assert list(extra["errors"]) == ["verbose"]
    extra = problem(ann.post(f"{at}/pause?force=1", json={"expected_generation": 1}), 422, "invalid")
    assert list(extra["errors"]) == ["force"]
    assert ann.get(at).json()["generation"] == 1


def test_s66_a_nul_anywhere(api: Api) -> None:
    """In the address 400, in an id 400 or 404, in a body 422: never an error of the database."""
    ann = api.person("ann")
    job = submit(ann)
    problem(ann.get("/jobs?text=a%00b"), 400, "unparseable")
    problem(ann.get("/jobs/a%00b"), 400, "unparseable")
    why = {"expected_generation": 1, "why": "a\0b"}
    assert problem(ann.post(f"/jobs/{job['id']}/cancel", json=why), 422, "invalid")["errors"]
    lone = b'{"expected_generation": 1, "why": "\\ud800"}'
    refused = ann.post(f"/jobs/{job['id']}/cancel", content=lone, headers=JSON)
    assert refused.status_code in {400, 422}
    key = ann.post("/jobs", json={"task": "shop.count"}, headers={"Idempotency-Key": "k" * 256})
    assert problem(key, 413, "too_large")["limit"] == 255


def test_s68_a_body_that_is_too_long(api: Api) -> None:
    """Over the limit, in bytes: 413, and nothing is made; what is over the limit of a value likewise."""
    ann = api.person("ann")
    limit = 1 << 20
    long = {"task": "shop.pay", "args": [1], "kwargs": {"amount": "€" * (limit // 2)}}
    content = json.dumps(long, ensure_ascii=False).encode()
    assert problem(ann.post("/jobs", content=content, headers=JSON), 413, "too_large")["limit"] > limit
    fits = {"task": "shop.pay", "args": [1], "kwargs": {"amount": "x" * 8000}}
    assert ann.post("/jobs", json=fits).status_code == 202
    assert ann.get("/jobs").json()["total_count"] == 1


def test_the_list_of_jobs(api: Api) -> None:
    """Filters narrow it, the count is exact, a cursor goes on where the page before ended."""
    ann = api.person("ann")
    made = [submit(ann)["id"] for _ in range(5)]
    paid = submit(ann, "shop.pay", args=[7])
    ann.post(f"/jobs/{paid['id']}/cancel", json={"expected_generation": 1})
    first = ann.get("/jobs", params={"limit": 2, "task": "shop.count"}).json()
    assert (first["returned_count"], first["total_count"]) == (2, 5)
    second = ann.get("/jobs", params={"limit": 2, "task": "shop.count", "cursor": first["next"]}).json()
    third = ann.get("/jobs", params={"limit": 2, "task": "shop.count", "cursor": second["next"]}).json()
    found = [job["id"] for page in (first, second, third) for job in page["jobs"]]
    assert found == made[::-1]
    assert third["next"] is None
    for given in ({"state": "cancelled"}, {"task": "shop.pay"}, {"text": paid["id"][:13].upper()}):
        assert [job["id"] for job in ann.get("/jobs", params=given).json()["jobs"]] == [paid["id"]]
    assert ann.get("/jobs", params={"state": ["pending", "cancelled"]}).json()["total_count"] == 6
    assert ann.get("/jobs", params={"older_than": 3600}).json()["total_count"] == 0
    for wrong in ({"state": "queued"}, {"limit": 0}, {"cursor": "x"}, {"stop_reason": "tired"}, {"older_than": "nan"}):
        problem(ann.get("/jobs", params=wrong), 422, "invalid")
    problem(ann.get("/jobs", params={"owner": "bob"}), 403, "forbidden")


def test_etag_and_long_poll(api: Api) -> None:
    """What has not changed is a 304; whoever waits is told when it changes."""
    ann = api.person("ann")
    job = submit(ann)
    at = f"/jobs/{job['id']}"
    tag = ann.get(at).headers["etag"]
    assert ann.get(at, headers={"If-None-Match": tag}).status_code == 304
    head = ann.head(at)
    assert (head.status_code, head.headers["etag"], head.content) == (200, tag, b"")
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(ann.get, at, params={"wait": 20}, headers={"If-None-Match": tag})
        api.site.supervise.pause(job["id"], actor="user:bob")
        changed = waiting.result()
    assert (changed.status_code, changed.json()["generation"]) == (200, 2)
    assert changed.headers["etag"] != tag


def test_a_stream_of_changes(api: Api) -> None:
    """Each state of the job once, until it ends."""
    ann = api.person("ann")
    job = submit(ann)
    seen = []
    with ann.stream("GET", f"/jobs/{job['id']}/events") as stream:
        for line in stream.iter_lines():
            if line.startswith("data: "):
                seen.append(json.loads(line.removeprefix("data: "))["state"])
                if len(seen) == 1:
                    api.site.supervise.cancel(job["id"], actor="user:bob")
    assert seen == ["pending", "cancelled"]


def test_many_jobs(api: Api) -> None:
    """First which, with their generations; then that list: each has its result, others' jobs are not there."""
    ann, bob = api.person("ann"), api.person("bob")
    made = sorted(submit(ann)["id"] for _ in range(3))
    theirs = submit(bob)
    chosen = ann.get("/bulk/cancel", params={"task": "shop.count"}).json()
    assert (sorted(one["job_id"] for one in chosen["targets"]), chosen["total_count"]) == (made, 3)
    ann.post(f"/jobs/{made[0]}/pause", json={"expected_generation": 1})
    targets = [
        {"job_id": one["job_id"], "expected_generation": one["expected_generation"]} for one in chosen["targets"]
    ]
    done = ann.post(
        "/bulk/cancel", json={"targets": [*targets, {"job_id": theirs["id"], "expected_generation": 1}], "why": "all"}
    )
    assert done.status_code == 202
    by_id = {one["job_id"]: one for one in done.json()["outcomes"]}
    assert [by_id[job_id]["status"] for job_id in made] == [409, 202, 202]
    assert by_id[theirs["id"]]["problem"] == {"code": "not_found", "detail": None}
    assert bob.get(f"/jobs/{theirs['id']}").json()["state"] == "pending"
    problem(ann.get("/bulk/cancel"), 422, "invalid")
    problem(ann.post("/bulk/cancel", json={"targets": []}), 422, "invalid")
    problem(ann.post("/bulk/explode", json={"targets": targets}), 422, "invalid")
    assert ann.get("/bulk/cancel", params={"everything": True}).json()["total_count"] == 1


def test_an_operator_sees_everybodys(api: Api) -> None:
    """Without an owner of its own a token sees all jobs, and can look for one owner's."""
    ann, ops = api.person("ann"), api.person("ops", scope="operator")
    job = submit(ann)
    submit(api.person("bob"))
    assert ops.get("/jobs").json()["total_count"] == 2
    assert [one["id"] for one in ops.get("/jobs", params={"owner": "ann"}).json()["jobs"]] == [job["id"]]
    assert ops.post(f"/jobs/{job['id']}/pause", json={"expected_generation": 1}).status_code == 202
    assert api.site.supervise.job(job["id"]).state is State.PENDING

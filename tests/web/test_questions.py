"""Questions over HTTP: the inbox, answers, who may give them, and what is told to whoever is late."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.celery.site import working
from tests.tools import wait_for
from tests.web.conftest import Api
from tests.web.test_jobs import problem, submit


@pytest.fixture
def asked(api: Api) -> Iterator[tuple[Api, dict[str, Any]]]:
    """Ann's job, parked on its question, with a worker."""
    with working(api.site):
        job = submit(api.person("ann"), "shop.pay", args=[7])
        ops = api.person("ops", scope="operator")
        wait_for(lambda: ops.get("/questions").json()["questions"], what="a question")
        yield api, ops.get(f"/jobs/{job['id']}").json()


def test_an_answer_lets_the_job_go_on(asked: tuple[Api, dict[str, Any]]) -> None:
    """The inbox shows what is asked and its form; the answer is accepted by the digest of what was shown."""
    api, job = asked
    bob = api.person("bob", scope="answerer")
    inbox = bob.get("/questions").json()
    (question,) = inbox["questions"]
    assert (inbox["total_count"], question["job_id"]) == (1, job["id"])
    assert question["content"]["prompt"] == "Pay 1.00 to 7?"
    assert question["schema"] == {"enum": ["yes", "no"]}
    at = f"/questions/{question['id']}/answer"
    problem(bob.post(at, json={"value": "yes"}), 428, "precondition_required")
    refused = problem(bob.post(at, json={"value": "maybe", "seen": question["digest"]}), 422, "invalid_answer")
    assert list(refused["errors"]) == ["$"]
    changed = bob.post(at, json={"value": "yes", "seen": "0" * 64})
    problem(changed, 409, "question_changed")
    accepted = bob.post(at, json={"value": "yes", "seen": question["digest"]})
    assert (accepted.status_code, accepted.headers["location"]) == (202, f"/jobs/{job['id']}")
    wait_for(lambda: bob.get(f"/jobs/{job['id']}").json()["state"] == "completed", what="its end")
    assert bob.get(f"/jobs/{job['id']}/result").json()["result"] == "7: yes"
    late = problem(bob.post(at, json={"value": "no", "seen": question["digest"]}), 409, "already_answered")
    assert late["answered_by"] == "user:bob"
    assert late["answered_at"]
    (kept,) = bob.get(f"/jobs/{job['id']}/questions").json()["questions"]
    assert (kept["answer"], kept["answered_by"]) == ("yes", "user:bob")


def test_s21_who_answers_says_the_login(asked: tuple[Api, dict[str, Any]]) -> None:
    """Names in body or headers are refused or ignored; one's own job is not one's own to approve, by any route."""
    api, job = asked
    ann, bob = api.person("ann"), api.person("bob", scope="answerer")
    (question,) = ann.get("/questions").json()["questions"]
    at = f"/questions/{question['id']}/answer"
    seen = {"value": "yes", "seen": question["digest"]}
    for name in ("answered_by", "actor", "owner", "approved_at"):
        assert list(problem(bob.post(at, json={**seen, name: "ceo"}), 422, "invalid")["errors"]) == [name]
    problem(ann.post(at, json=seen), 403, "self_approval")
    assert ann.get(f"/jobs/{job['id']}").json()["state"] == "parked"
    assert bob.post(at, json=seen, headers={"X-Actor": "ceo", "X-Forwarded-User": "ceo"}).status_code == 202
    (entry,) = ann.get(f"/jobs/{job['id']}/log", params={"event": "answered"}).json()["entries"]
    assert entry["actor"] == "user:bob"


def test_of_many_answers_at_once_one_counts(asked: tuple[Api, dict[str, Any]]) -> None:
    """Every other one is told who was first."""
    api, job = asked
    people = [api.person(f"p{number}", scope="answerer") for number in range(8)]
    (question,) = people[0].get("/questions").json()["questions"]
    body = {"value": "yes", "seen": question["digest"]}
    with ThreadPoolExecutor(8) as pool:
        replies = list(pool.map(lambda one: one.post(f"/questions/{question['id']}/answer", json=body), people))
    assert sorted(one.status_code for one in replies) == [202, *[409] * 7]
    log = people[0].get(f"/jobs/{job['id']}/log", params={"event": "answered"}).json()
    assert log["total_count"] == 1


def test_reassign_withdraw_extend(asked: tuple[Api, dict[str, Any]]) -> None:
    """A question is given to others, gets more time, and is taken back."""
    api, job = asked
    ann, bob = api.person("ann"), api.person("bob", scope="answerer")
    (question,) = ann.get("/questions").json()["questions"]
    at, generation = f"/questions/{question['id']}", question["generation"]
    given = ann.post(f"{at}/reassign", json={"to": ["carol"], "expected_generation": generation})
    assert (given.status_code, given.json()["said"]) == (202, "now for carol")
    problem(bob.post(f"{at}/answer", json={"value": "yes", "seen": question["digest"]}), 403, "not_assigned")
    more = {"by_seconds": 60.0, "expected_generation": generation + 1}
    assert ann.post(f"{at}/extend", json=more).status_code == 202
    assert ann.get(at).json()["expires_at"] > question["expires_at"]
    problem(bob.post(f"{at}/withdraw", json={"expected_generation": generation + 2}), 403, "forbidden")
    taken = ann.post(f"{at}/withdraw", json={"expected_generation": generation + 2, "why": "wrong vendor"})
    assert taken.status_code == 202
    wait_for(lambda: ann.get("/questions").json()["questions"], what="the question, asked anew")
    (anew,) = ann.get("/questions").json()["questions"]
    assert (anew["id"] != question["id"], anew["job_id"]) == (True, job["id"])

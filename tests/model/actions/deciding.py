"""What several people do with one question: vote, give it to others, take it back. The reply is the step's note."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from celery_supervise.lifecycle import Event, State, answered, withdrawn

from ..context import Model, time_over
from ..machine import RECIPIENTS, Clock, Intent, Job, Person, Question, Votes, World
from ..statements import end, ensure, log
from ..steps import Step

PEOPLE = (1, 2, 3)
VALUES = (1, 2)


def moves(model: Model, world: World) -> Iterator[Step]:
    """Every vote, by everybody; every other use of the question that somebody may still make."""
    job, person = world.job, world.person
    if job is None:
        return
    if person.vote and job.questions:
        spent = _spent(world, person._replace(vote=person.vote - 1))
        yield from (_vote(model, spent, who, value) for who in PEOPLE for value in VALUES)
    if person.reassign and job.open_question:
        yield _reassign(model, _spent(world, person._replace(reassign=person.reassign - 1)))
    if person.withdraw and job.open_question:
        yield _withdraw(model, _spent(world, person._replace(withdraw=person.withdraw - 1)))
    yield from _late(model, world)


def _spent(world: World, person: Person) -> World:
    return world._replace(person=person)


def _step(world: World, verb: str, event: Event | None, note: str) -> Step:
    return Step("person", verb, world, event, note, system=False)


def _vote(model: Model, world: World, who: int, value: int) -> Step:
    """Lock the job; then the clock; then the question, whose it is, and the votes that there are."""
    question, verb = world.row.open_question, f"votes as {who}"
    if question is None:
        return _step(world, verb, None, "409 question_closed")
    if model.rules.vote_by_recipient and who not in RECIPIENTS[question.people]:
        return _step(world, verb, None, "403 not_assigned")
    if time_over(world.row):
        return _expires(model, world, verb)
    decides = _decides(model, question, who, value)
    if model.rules.votes_counted_as_judged:
        return _voted(model, world, who, value, decides=decides)
    intent = Intent("vote", who * 100 + value * 10 + decides)
    return _step(world._replace(intents=(*world.intents, intent)), "counts, to vote", None, "")


def _late(model: Model, world: World) -> Iterator[Step]:
    """A vote that was counted before is cast now (only where it is not counted anew)."""
    for index, intent in enumerate(world.intents):
        job = world.row
        if intent.kind == "vote" and job.open_question and not time_over(job):
            rest = world._replace(intents=(*world.intents[:index], *world.intents[index + 1 :]))
            who, value, decides = (int(digit) for digit in str(intent.value))
            yield _voted(model, rest, who, value, decides=bool(decides))


def _expires(model: Model, world: World, verb: str) -> Step:
    return _step(end(model, world, State.EXPIRED), verb, Event.EXPIRE, "409 expired")


def _with(model: Model, votes: Votes, who: int, value: int) -> Votes:
    if not model.rules.one_vote_a_person:
        return (*votes, (who, value))
    return _latest(votes, who, value)


def _latest(votes: Votes, who: int, value: int) -> Votes:
    said: Mapping[int, int] = {**dict(votes), who: value}
    return tuple(sorted(said.items()))


def _decides(model: Model, question: Question, who: int, value: int) -> bool:
    votes = _with(model, question.votes, who, value)
    agree = [vote for _, vote in votes if vote == value or not model.rules.votes_agree]
    return len(agree) >= model.scenario.approvals


def _voted(model: Model, world: World, who: int, value: int, *, decides: bool) -> Step:
    """The vote is kept; the one that decides is the answer, and the job gets a ticket."""
    job, verb = world.row, f"votes as {who}"
    question = job.open_question
    assert question is not None
    given = question._replace(votes=_with(model, question.votes, who, value))
    ghost = world.ghost._replace(votes=_latest(world.ghost.votes, who, value))
    if not decides:
        return _step(log(model, world._replace(job=_put(job, given), ghost=ghost)), verb, Event.VOTE, "202")
    given = given._replace(status="answered", answer=value)
    job = ensure(model, _put(job, given)._replace(wait=Clock.NEVER, reason=answered(str(question.key))))
    ghost = ghost._replace(answers=(*ghost.answers, (question.key, value)))
    return _step(log(model, world._replace(job=job, ghost=ghost)), verb, Event.ANSWER, "202")


def _put(job: Job, question: Question) -> Job:
    """The job with its open question changed."""
    return job._replace(questions=tuple(question if each.status == "open" else each for each in job.questions))


def _reassign(model: Model, world: World) -> Step:
    """The question goes to others; what was voted before is void."""
    job, verb = world.row, "gives the question to others"
    if time_over(job):
        return _expires(model, world, verb)
    question = job.open_question
    assert question is not None
    votes = () if model.rules.reassign_voids_votes else question.votes
    given = question._replace(people=1 - question.people, votes=votes)
    after = world._replace(job=_put(job, given), ghost=world.ghost._replace(votes=()))
    return _step(log(model, after), verb, Event.REASSIGN, "202")


def _withdraw(model: Model, world: World) -> Step:
    """The question is closed, and the body goes on and asks anew."""
    job, verb = world.row, "takes the question back"
    if time_over(job):
        return _expires(model, world, verb)
    question = job.open_question
    assert question is not None
    if model.rules.withdraw_closes_question:
        job = job._replace(questions=tuple(each for each in job.questions if each != question), wait=Clock.NEVER)
    if model.rules.withdraw_sets_reason:
        job = job._replace(reason=withdrawn(str(question.key)))
    if model.rules.withdraw_issues_ticket:
        job = ensure(model, job)
    after = world._replace(job=job, ghost=world.ghost._replace(votes=()))
    return _step(log(model, after), verb, Event.WITHDRAW, "202")

"""What the moves are made under: the rules, the scenario, the judgement of ``celery_supervise.lifecycle``. No moves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product

from celery_supervise.lifecycle import Event, Facts, judge

from .machine import Clock, Job, World
from .rules import Rules


@dataclass(frozen=True)
class Scenario:
    """Where an exploration starts, and what is fixed in it.

    `program` is the body: "step" saves a checkpoint, "ask" asks, "make" makes something outside. `ttl`: questions
    have a time. `results`: the result backend is modelled. `window_full`: tickets are not released when they are
    issued. `early_deaths`: children die between the arrival of a message and its claim, too. `restored`: the row
    was restored from a backup and knows less than the broker. `least`: fewer states mean that something no longer
    happens. `approvals`: how many must agree. `migrates`: the next version's code takes over the older one's jobs.
    """

    name: str
    text: str
    start: World
    least: int
    program: tuple[str, ...] = ("step", "ask", "step")
    ttl: bool = False
    results: bool = False
    window_full: bool = False
    early_deaths: bool = False
    restored: bool = False
    lost_limit: int = 1
    retry_limit: int = 1
    approvals: int = 1
    migrates: bool = False


JUDGED_BY: Mapping[Event, str] = {
    Event.CLAIM: "judge_claim",
    Event.CHECKPOINT: "judge_checkpoint",
    Event.ASK: "judge_ask",
    Event.COMPLETE: "judge_complete",
    Event.FAIL: "judge_fail",
    Event.RETRY: "judge_retry",
    Event.HAND_OVER: "judge_hand_over",
    Event.REPLACE: "judge_replace",
    Event.REPLACE_PLAIN: "judge_replace_plainly",
    Event.LOSE: "judge_lose",
    Event.EXPIRE: "judge_expire",
    Event.STALL_CANCEL: "judge_stall",
    Event.STALL_FAIL: "judge_stall",
}

_PARKED_BY: Mapping[Event, str] = {
    Event.CLAIM: "claim_parks_on_pause",
    Event.CHECKPOINT: "checkpoint_parks_on_pause",
    Event.ASK: "ask_parks_on_pause",
}


def _seen(rules: Rules, event: Event, facts: Facts) -> Facts:
    """What the judgement gets to see of the facts once a rule is taken out."""
    judged = bool(getattr(rules, JUDGED_BY[event]))
    parks = event not in _PARKED_BY or bool(getattr(rules, _PARKED_BY[event]))
    cancel, over, pause = (
        facts.cancel_requested and judged,
        facts.time_over and judged,
        facts.pause_requested and parks,
    )
    if not rules.cancel_first and over:
        cancel = False
    if not rules.expiry_before_pause and pause and event in _PARKED_BY:
        over = False
    if not rules.pause_before_hand_over and facts.hand_over:
        pause = False
    return Facts(cancel_requested=cancel, time_over=over, pause_requested=pause, hand_over=facts.hand_over)


def _verdicts(rules: Rules) -> dict[tuple[Event, bool, bool, bool, bool], Event]:
    verdicts = {}
    for event in JUDGED_BY:
        for cancel, over, pause, hand_over in product((False, True), repeat=4):
            facts = Facts(cancel_requested=cancel, time_over=over, pause_requested=pause, hand_over=hand_over)
            verdicts[event, cancel, over, pause, hand_over] = _judged(event, _seen(rules, event, facts))
    return verdicts


def _judged(event: Event, facts: Facts) -> Event:
    """The sweep's expiry is the judgement of a job whose time is over and that nobody else touched."""
    if event is Event.EXPIRE:
        return judge(Event.LOSE, Facts(cancel_requested=facts.cancel_requested, time_over=True))
    if event in (Event.STALL_CANCEL, Event.STALL_FAIL):
        verdict = judge(Event.LOSE, facts)  # what the row says goes before what the task asks for
        return event if verdict is Event.LOSE else verdict
    return judge(event, facts)


class Model:
    """A scenario under rules."""

    def __init__(self, scenario: Scenario, rules: Rules) -> None:
        self.scenario = scenario
        self.rules = rules
        self._verdicts = _verdicts(rules)

    def verdict(self, event: Event, job: Job, *, hand_over: bool = False) -> Event:
        """What really happens to `job` when `event` is attempted (protocol 12)."""
        over = time_over(job) or (event is Event.CLAIM and job.start_by is Clock.PASSED)
        return self._verdicts[event, job.cancel, over, job.pause, hand_over]


def time_over(job: Job) -> bool:
    """Whether the job's deadline, or the time of its open question, has passed on the database's clock."""
    return job.deadline is Clock.PASSED or job.wait is Clock.PASSED

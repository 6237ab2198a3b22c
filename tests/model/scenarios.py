"""The scenarios: small budgets in different mixtures, so that together they cover everything."""

from __future__ import annotations

from .context import Scenario
from .machine import Chances, Clock, Faults, Job, Message, Person, Published, Relay, World

_SUBMITTED = Job(ticket=1)
_SENT = Job(ticket=1, published=Published.SENT)
_MESSAGE = (Message(1),)

_STEP = ("step",)
_ASK = ("ask",)
_MAKE = ("make",)

SCENARIOS: tuple[Scenario, ...] = (
    Scenario(
        name="races",
        text="a person who does everything, a doubled message, a body that may raise; nothing dies",
        least=6_500,
        start=World(
            _SENT,
            messages=_MESSAGE,
            person=Person(pause=2, resume=2, cancel=1, answer=1),
            chances=Chances(fails=1, retries=1),
            faults=Faults(double=1),
        ),
    ),
    Scenario(
        name="crash",
        text="processes die twice, a message is lost, one doubled, a report is lost; an answer, a cancel",
        least=28_000,
        start=World(
            _SENT,
            messages=_MESSAGE,
            person=Person(cancel=1, answer=1),
            faults=Faults(crash=2, lose=1, double=1, away=1),
        ),
        program=("step", "ask"),
    ),
    Scenario(
        name="deaths",
        text="a process dies and its parent cannot report it",
        least=400,
        start=World(_SENT, messages=_MESSAGE, chances=Chances(fails=1), faults=Faults(crash=1, away=1)),
        program=_STEP,
    ),
    Scenario(
        name="storm",
        text="a little of everything at once",
        least=28_000,
        start=World(
            _SENT,
            messages=_MESSAGE,
            person=Person(pause=1, resume=1, cancel=1, answer=1),
            faults=Faults(crash=1, freeze=1),
        ),
        program=_ASK,
    ),
    Scenario(
        name="zombie",
        text="a worker freezes and wakes up, a lease ends though its process lives, bodies fail and retry",
        least=29_000,
        start=World(
            _SENT,
            messages=_MESSAGE,
            person=Person(cancel=1, pause=1),
            chances=Chances(fails=1, retries=1, skipped=1),
            faults=Faults(freeze=1, stall=1),
        ),
        program=("step", "step"),
    ),
    Scenario(
        name="zombie_asks",
        text="a worker freezes before it asks, another one asks, is answered and goes on",
        least=3_800,
        start=World(
            _SENT,
            messages=_MESSAGE,
            person=Person(answer=1, pause=1, resume=1),
            faults=Faults(freeze=1, double=1),
        ),
        program=("ask", "step"),
    ),
    Scenario(
        name="clock",
        text="deadline, start_by and the time of a question pass at any moment",
        least=23_000,
        start=World(
            _SUBMITTED._replace(deadline=Clock.AHEAD, start_by=Clock.AHEAD),
            person=Person(pause=1, resume=1, cancel=1, answer=1),
            chances=Chances(fails=1, retries=1),
            faults=Faults(crash=1),
        ),
        program=("step", "ask"),
        ttl=True,
    ),
    Scenario(
        name="answers",
        text="people answer twice and cancel while the question's time passes; a reminder is logged",
        least=17_000,
        start=World(
            _SENT,
            messages=_MESSAGE,
            person=Person(answer=3, cancel=1, pause=1, resume=1),
            chances=Chances(remind=1),
            faults=Faults(crash=1),
        ),
        program=("ask", "ask"),
        ttl=True,
    ),
    Scenario(
        name="more_time",
        text="the deadline and a question's time are moved, or pass; a body stands still; a crash, a cancel",
        least=9_000,
        start=World(
            _SENT._replace(deadline=Clock.AHEAD),
            messages=_MESSAGE,
            person=Person(extend=2, answer=1, cancel=1),
            chances=Chances(stall=1),
            faults=Faults(crash=1),
        ),
        program=_ASK,
        ttl=True,
    ),
    Scenario(
        name="votes",
        text="two of three people must agree; the question goes to others, is taken back, and its time passes",
        least=18_000,
        start=World(
            _SENT,
            messages=_MESSAGE,
            person=Person(vote=3, reassign=1, withdraw=1, cancel=1),
            faults=Faults(crash=1),
        ),
        program=_ASK,
        ttl=True,
        approvals=2,
    ),
    Scenario(
        name="hand_over",
        text="workers shut down in the middle of a pause, a cancel, a freeze",
        least=9_500,
        start=World(
            _SENT,
            messages=_MESSAGE,
            person=Person(pause=1, resume=1, cancel=1),
            chances=Chances(hand_over=2),
            faults=Faults(freeze=1),
        ),
        program=("step", "step"),
    ),
    Scenario(
        name="retry",
        text="a body that retries more often than it may; crashes and losses in between",
        least=3_000,
        start=World(
            _SENT,
            messages=_MESSAGE,
            chances=Chances(retries=3, fails=1),
            faults=Faults(crash=1, lose=1, double=1),
        ),
        program=_STEP,
    ),
    Scenario(
        name="other_args",
        text="a retry with other arguments; the old message comes late, the old answer is still there",
        least=7_500,
        start=World(
            _SENT,
            messages=_MESSAGE,
            person=Person(answer=2),
            chances=Chances(other_args=1),
            faults=Faults(double=1, freeze=1),
        ),
    ),
    Scenario(
        name="drift",
        text="a deploy changes what is asked",
        least=840,
        start=World(
            _SENT,
            messages=_MESSAGE,
            person=Person(answer=2),
            chances=Chances(drift=1),
            faults=Faults(crash=1),
        ),
        program=("ask", "step"),
    ),
    Scenario(
        name="unknown",
        text="COMMIT is sent and no reply comes, at every statement; the worker may die over it",
        least=12_000,
        start=World(
            _SENT,
            messages=_MESSAGE,
            person=Person(answer=1, cancel=1),
            chances=Chances(fails=1, retries=1),
            faults=Faults(unknown=1, crash=1),
        ),
        program=("step", "ask"),
    ),
    Scenario(
        name="unknown_twice",
        text="no reply comes twice, with pauses and hand-overs in between",
        least=1_500,
        start=World(
            _SENT,
            messages=_MESSAGE,
            person=Person(pause=1, resume=1),
            chances=Chances(hand_over=1),
            faults=Faults(unknown=2),
        ),
        program=("step", "step"),
    ),
    Scenario(
        name="reports",
        text="children that die before or after the claim, duplicates, requests that Celery ends; late reports",
        least=11_000,
        start=World(
            _SENT,
            messages=_MESSAGE,
            person=Person(cancel=1),
            chances=Chances(fails_early=1, retries=1),
            faults=Faults(crash=1, double=1),
        ),
        program=_STEP,
        early_deaths=True,
    ),
    Scenario(
        name="celery_ends_it",
        text="Celery ends a request before its claim, be the job new, retried or answered",
        least=1_100,
        start=World(
            _SENT,
            messages=_MESSAGE,
            person=Person(answer=1, cancel=1),
            chances=Chances(fails_early=1, retries=1),
            faults=Faults(double=1),
        ),
        program=_ASK,
    ),
    Scenario(
        name="reports_of_ends",
        text="a child dies after its last commit and nobody got the reply",
        least=7_900,
        start=World(_SENT, messages=_MESSAGE, faults=Faults(crash=2, double=1, unknown=1)),
        program=_STEP,
        early_deaths=True,
    ),
    Scenario(
        name="headerless",
        text="a call by name: no header, no row; doubled, redelivered, pruned",
        least=5_200,
        start=World(
            None,
            messages=(Message(0),),
            person=Person(answer=1, cancel=1),
            chances=Chances(prune=1),
            faults=Faults(double=1, crash=1, away=1),
        ),
        program=_ASK,
        early_deaths=True,
    ),
    Scenario(
        name="rolled_back",
        text="a message with our header whose row was never committed",
        least=4,
        start=World(None, messages=_MESSAGE, faults=Faults(double=1)),
        program=_ASK,
    ),
    Scenario(
        name="restored",
        text="a restored database: the message is out, its ticket in the row not yet due or released",
        least=230,
        start=World(
            _SUBMITTED._replace(due=False, released=False),
            messages=_MESSAGE,
            person=Person(cancel=1, answer=1),
            faults=Faults(double=1),
        ),
        program=_ASK,
        window_full=True,
        restored=True,
    ),
    Scenario(
        name="relay",
        text="two relays, each may die between its commits; messages are lost, doubled, flushed",
        least=21_000,
        start=World(
            _SUBMITTED,
            relays=(Relay(), Relay()),
            person=Person(answer=1, cancel=1),
            faults=Faults(crash=1, lose=1, double=1, flush=1),
        ),
        program=_ASK,
    ),
    Scenario(
        name="telling",
        text="a teller dies or freezes between the outcome's commit, Celery and settled_at",
        least=10_000,
        start=World(
            _SENT,
            messages=_MESSAGE,
            person=Person(cancel=1),
            chances=Chances(fails=1),
            faults=Faults(crash=1, freeze=1),
        ),
        program=_STEP,
    ),
    Scenario(
        name="results",
        text="PARKED and RETRY reach the result backend late; a worker freezes over it",
        least=16_000,
        start=World(
            _SENT,
            messages=_MESSAGE,
            person=Person(cancel=1, answer=1, pause=1),
            chances=Chances(retries=1),
            faults=Faults(freeze=1),
        ),
        program=_ASK,
        results=True,
    ),
    Scenario(
        name="results_crash",
        text="the same, and a worker dies over it",
        least=7_100,
        start=World(
            _SENT,
            messages=_MESSAGE,
            person=Person(answer=1, cancel=1),
            chances=Chances(fails=1, retries=1),
            faults=Faults(crash=1),
        ),
        program=_ASK,
        results=True,
    ),
    Scenario(
        name="cleanups",
        text="a worker freezes, or loses its lease, in the middle of an effect; a cancel, a failure",
        least=7_000,
        start=World(
            _SENT,
            messages=_MESSAGE,
            person=Person(cancel=1),
            chances=Chances(fails=1),
            faults=Faults(freeze=1, stall=1),
        ),
        program=_MAKE,
    ),
    Scenario(
        name="cleanups_crash",
        text="processes die around an effect; a cancel",
        least=900,
        start=World(_SENT, messages=_MESSAGE, person=Person(cancel=1), faults=Faults(crash=1, away=1)),
        program=_MAKE,
    ),
)


def by_name(name: str) -> Scenario:
    """The scenario of that name."""
    return next(scenario for scenario in SCENARIOS if scenario.name == name)

"""Explores every scenario of the protocol's model, and takes each rule out to see something break."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from celery_supervise.lifecycle import JUDGED, TABLE, Event, State

from .__main__ import main
from .actions import moves
from .canonical import canonical
from .context import JUDGED_BY, Model
from .explore import Exploration, explore
from .machine import Worker, World
from .rules import BACKUPS, RULES, Backup, Rule, Rules, without
from .scenarios import SCENARIOS, by_name

# one process explores them all, since the last test here looks at all of them
pytestmark = pytest.mark.xdist_group("model")

Explored = Callable[[str], Exploration]

NOT_MODELLED = frozenset(
    {
        Event.SETTLE,  # modelled, as a column: the job does not move
        Event.ERASE,
    }
)

NEVER_MADE = frozenset(
    {
        # a cancel request ends a waiting job at once, so that none is ever found with one
        (State.PENDING, Event.CANCEL),
        (State.PARKED, Event.CANCEL),
        # only an attempt can be lost once too often
        (State.PENDING, Event.GIVE_UP),
        (State.PARKED, Event.GIVE_UP),
    }
)


@pytest.fixture(scope="session")
def explored() -> Explored:
    """Explore a scenario under all rules; each once."""
    known: dict[str, Exploration] = {}

    def get(name: str) -> Exploration:
        if name not in known:
            known[name] = explore(Model(by_name(name), Rules()))
        return known[name]

    return get


@pytest.mark.parametrize("name", [scenario.name for scenario in SCENARIOS])
def test_no_promise_is_broken(name: str, explored: Explored, record_property: Callable[[str, object], None]) -> None:
    """Whatever happens in whatever order, every promise holds and everything can come to rest."""
    found = explored(name)
    record_property("states", found.states)
    record_property("transitions", found.transitions)
    assert found.violation is None, str(found.violation)
    assert found.states >= by_name(name).least


@pytest.mark.timeout(300)  # run alone it explores everything
def test_every_modelled_move_of_the_table_is_made(explored: Explored) -> None:
    """The scenarios together walk every edge of the lifecycle whose event the model has; none is dead."""
    found = [explored(scenario.name) for scenario in SCENARIOS]
    walked = set().union(*(each.edges for each in found))
    table = {(state, event) for state, edges in TABLE.items() for event in edges if event not in NOT_MODELLED}
    assert walked == table - NEVER_MADE
    assert sum(each.states for each in found) >= 250_000
    assert sum(each.transitions for each in found) >= 800_000


@pytest.mark.parametrize("rule", [pytest.param(rule, id=rule.name) for rule in RULES])
def test_every_rule_is_needed(rule: Rule, record_property: Callable[[str, object], None]) -> None:
    """Without any one rule some promise is broken, unless the rule says who backs it up."""
    found = explore(Model(by_name(rule.shows), without(rule.name)))
    record_property("violation", str(found.violation))
    backed_up = rule.name in {backup.rule for backup in BACKUPS}
    assert (found.violation is None) == backed_up, f"without: {rule.text}"


@pytest.mark.parametrize("backup", [pytest.param(backup, id=backup.rule) for backup in BACKUPS])
def test_a_redundant_rule_backs_another_one_up(backup: Backup) -> None:
    """What nothing breaks without is needed as soon as its partner is gone too."""
    scenario = by_name(next(rule.shows for rule in RULES if rule.name == backup.rule))
    alone = explore(Model(scenario, without(backup.partner)), only=backup.promise)
    both = explore(Model(scenario, without(backup.rule, backup.partner)), only=backup.promise)
    assert alone.violation is None, str(alone.violation)
    assert both.violation is not None


def test_there_are_as_many_rules_as_there_were() -> None:
    """A rule does not disappear from the check unnoticed."""
    assert len(RULES) - len(BACKUPS) >= 130


def test_the_judgement_of_every_event_is_under_check() -> None:
    """Each judged event of the lifecycle has a rule here that takes its judgement away."""
    assert {*JUDGED_BY} >= JUDGED - NOT_MODELLED


def test_it_can_be_run_by_hand(capsys: pytest.CaptureFixture[str]) -> None:
    """``python -m tests.model`` says what was explored and which mutants were killed, and exits accordingly."""
    assert main(["deaths", "settle_sweep"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split()[:3] == ["deaths", "425", "states"]
    assert lines[-1] == "1 scenarios: 425 states, 1004 transitions; 1 of 1 mutants killed"
    assert main(["ticket_kept"]) == 0


def test_a_violation_is_told_by_its_shortest_trace() -> None:
    """The trace names the actors, what they did, and where the job stands then."""
    found = explore(Model(by_name("deaths"), without("heartbeat_by_incarnation")))
    assert found.violation is not None
    assert str(found.violation).splitlines() == [
        "it_comes_to_rest",
        "   1 w0 claim → running",
        "   2 w0 is killed → running",
    ]


def _other(number: int) -> int:
    return number + 50 if number > 0 else number


def _mirrored(world: World) -> World:
    """The same world under other names: workers exchanged, messages in another order, every id another number."""
    job = world.job
    return world._replace(
        job=job and job._replace(ticket=_other(job.ticket), token=_other(job.token)),
        attempts=tuple(a._replace(token=_other(a.token), ticket=_other(a.ticket)) for a in world.attempts),
        messages=tuple(m._replace(ticket=_other(m.ticket)) for m in world.messages[::-1]),
        workers=tuple(_mirrored_worker(worker) for worker in world.workers[::-1]),
        reports=tuple(r._replace(token=_other(r.token), ticket=_other(r.ticket)) for r in world.reports),
    )


def _mirrored_worker(worker: Worker) -> Worker:
    message = worker.message._replace(ticket=_other(worker.message.ticket))
    return worker._replace(token=_other(worker.token), ticket=_other(worker.ticket), message=message)


def _successors(model: Model, world: World) -> set[World]:
    return {canonical(step.world) for step in moves(model, world)}


def test_names_make_no_difference() -> None:
    """Worlds that differ only in names are one state, and rightly so: they move to the same ones."""
    model = Model(by_name("crash"), Rules())
    known = {canonical(model.scenario.start): None}
    for world in (queue := list(known)):
        other = _mirrored(world)
        assert canonical(other) == world
        assert _successors(model, other) == _successors(model, world)
        new = _successors(model, world) - known.keys()
        known.update(dict.fromkeys(new))
        queue.extend(new if len(known) < 1000 else ())
    assert len(known) >= 1000

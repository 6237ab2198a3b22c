"""Explore every scenario, then every mutant, and say what was found: ``python -m tests.model [scenario or rule…]``."""

from __future__ import annotations

import sys

from .context import Model
from .explore import Exploration, explore
from .rules import BACKUPS, RULES, Rule, Rules, without
from .scenarios import SCENARIOS, by_name


def main(names: list[str]) -> int:
    """Explore what is named, or everything. The exit status says whether all is as it should be."""
    found = [_explored(scenario.name) for scenario in SCENARIOS if not names or scenario.name in names]
    mutants = [rule for rule in RULES if not names or rule.name in names]
    killed = [_killed(rule, trace=bool(names)) for rule in mutants]
    states, transitions = sum(each.states for each in found), sum(each.transitions for each in found)
    print(
        f"{len(found)} scenarios: {states} states, {transitions} transitions; "
        f"{sum(killed)} of {len(mutants)} mutants killed"
    )
    redundant = [rule for rule in mutants if rule.name in {backup.rule for backup in BACKUPS}]
    return int(any(each.violation for each in found) or sum(killed) + len(redundant) < len(mutants))


def _explored(name: str) -> Exploration:
    found = explore(Model(by_name(name), Rules()))
    print(f"{name:20} {found.states:7} states {found.transitions:8} transitions {found.seconds:5.1f} s")
    if found.violation:
        print(found.violation)
    return found


def _killed(rule: Rule, *, trace: bool) -> bool:
    found = explore(Model(by_name(rule.shows), without(rule.name)))
    violation = found.violation
    print(
        f"without {rule.name:24} ({rule.protocol}) in {rule.shows}: "
        f"{violation.invariant if violation else 'NOTHING BREAKS'}, {found.states} states {found.seconds:.1f} s"
    )
    if violation and trace:
        print(violation)
    return violation is not None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

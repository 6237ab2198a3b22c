"""Limits of owners, explored whole: no order of steps breaks them, and without any one rule some order does."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.model.quotas import RULES, SCENES, Rules, Scene, explore


@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.name)
def test_no_order_of_steps_breaks_a_limit(scene: Scene) -> None:
    """Of all there are; and from everywhere all jobs can come to rest."""
    states, wrong = explore(Rules(), scene)
    assert wrong == ""
    assert states > 200


@pytest.mark.parametrize("rule", RULES)
def test_each_rule_is_needed(rule: str) -> None:
    """Without it more run, or are open, than may be; or a job waits for ever."""
    without = replace(Rules(), **{rule: False})
    assert [scene.name for scene in SCENES if explore(without, scene)[1]] != []

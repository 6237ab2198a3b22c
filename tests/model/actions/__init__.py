"""All actors of the model."""

from __future__ import annotations

from collections.abc import Iterator

from ..context import Model
from ..machine import World
from ..steps import Step
from . import (
    claims,
    cleaning,
    deciding,
    faults,
    holder,
    holds,
    parents,
    people,
    relay,
    replies,
    sweeps,
    telling,
    versions,
)

ACTORS = (
    claims,
    holder,
    cleaning,
    replies,
    telling,
    parents,
    relay,
    sweeps,
    people,
    deciding,
    holds,
    versions,
    faults,
)


def moves(model: Model, world: World) -> Iterator[Step]:
    """Every move that anybody can make in `world`."""
    for actor in ACTORS:
        yield from actor.moves(model, world)

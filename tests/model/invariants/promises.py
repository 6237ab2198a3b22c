"""Asks the invariants of each move and of each new world, and names the first that does not hold. No moves."""

from __future__ import annotations

from ..context import Model
from ..machine import World
from ..steps import Step
from .moves import MOVE_CHECKS, Moved, the_table_has_the_move
from .worlds import WORLD_CHECKS, Seen

COMES_TO_REST = "it_comes_to_rest"
"""The one promise that is not of a move or a world but of the whole graph."""


class Promises:
    """All invariants, or `only` the one of that name."""

    def __init__(self, model: Model, only: str) -> None:
        self._model = model
        self._only = only
        self._of_moves = [check for check in MOVE_CHECKS if self.asks(check.__name__)]
        self._of_worlds = [check for check in WORLD_CHECKS if self.asks(check.__name__)]

    def asks(self, name: str) -> bool:
        """Whether that invariant is asked for."""
        return self._only in ("", name)

    def broken(self, before: World, step: Step, new: World | None) -> str:
        """The invariant that a move breaks, or the world it leads to, if that is `new`; empty if none."""
        moved = Moved(self._model, before, step)
        by_move = next((check.__name__ for check in self._of_moves if not check(moved)), "")
        return by_move or self._broken_in(new) or self._not_in_table(moved)

    def _broken_in(self, world: World | None) -> str:
        if world is None or world.job is None:
            return ""
        seen = Seen(self._model, world, world.job)
        return next((check.__name__ for check in self._of_worlds if not check(seen)), "")

    def _not_in_table(self, moved: Moved) -> str:
        """Asked last, so that a broken promise is called by its own name."""
        name = the_table_has_the_move.__name__
        return name if self.asks(name) and not the_table_has_the_move(moved) else ""

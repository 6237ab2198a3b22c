"""What must hold whatever happened: of every world, of every move, of every world's future. No moves."""

from .future import quiescent
from .promises import COMES_TO_REST, Promises

__all__ = ["COMES_TO_REST", "Promises", "quiescent"]

"""Ratios: what is compared, what it must reach, what came out."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Ratio:
    """A finding. `bound` is what it must reach; `at_most` says on which side."""

    name: str
    value: float
    bound: float
    detail: str
    at_most: bool = True

    @property
    def good(self) -> bool:
        """Whether it is reached."""
        return self.value <= self.bound if self.at_most else self.value >= self.bound

    def line(self) -> str:
        """As a line of the table."""
        sign = "≤" if self.at_most else "≥"
        mark = "ok  " if self.good else "MISS"
        return f"{mark}  {self.value:6.2f} {sign} {self.bound:<5g} {self.name:<58} {self.detail}"


def milliseconds(act: Callable[[int], object], numbers: Sequence[int]) -> float:
    """Median time of one call, over these numbers."""
    return statistics.median(_one(act, number) for number in numbers) * 1000


def _one(act: Callable[[int], object], number: int) -> float:
    begin = time.perf_counter()
    act(number)
    return time.perf_counter() - begin

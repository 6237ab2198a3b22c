"""`python -m benchmarks [--rounds N]`: a table of ratios; exit code 1 if one is missed."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator

from benchmarks import growth, statements, throughput
from benchmarks.measure import Ratio
from benchmarks.place import place


def main() -> int:
    """Measure everything, print as it comes."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--rounds", type=int, default=300, help="statements a turn")
    parser.add_argument("--jobs", type=int, default=1000, help="no-op jobs for the throughput")
    options = parser.parse_args()
    missed = 0
    for ratio in _all(options.rounds, options.jobs):
        print(ratio.line(), flush=True)
        missed += not ratio.good
    return 1 if missed else 0


def _all(rounds: int, jobs: int) -> Iterator[Ratio]:
    with place() as here:
        yield from statements.ratios(here, rounds=rounds)
        yield from growth.ratios(here)
    yield from throughput.ratios(jobs=jobs)


if __name__ == "__main__":
    sys.exit(main())

"""`stats` for Prometheus (the extra `metrics`): read when it is scraped, kept nowhere. Decides nothing.

```python
from celery_supervise.metrics import register

register(app)
```
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Final

from celery import Celery
from prometheus_client.core import REGISTRY, GaugeMetricFamily
from prometheus_client.registry import Collector, CollectorRegistry
from sqlalchemy.exc import DBAPIError

from .errors import SuperviseError
from .events import events_of
from .install import Supervisor as OfApp
from .stats import Stats
from .supervisor import Supervisor

logger = events_of(__name__)

Labels = tuple[str, ...]
Sample = tuple[Labels, float]

NO_TIME: Final = timedelta(0)
UP: Final = "supervise_up"
METRICS: Final[Mapping[str, tuple[str, Labels]]] = {
    UP: ("Whether the database could be asked; if 0, there is nothing else.", ()),
    "supervise_jobs": ("Jobs, at most 100,000 a state.", ("state",)),
    "supervise_oldest_pending_seconds": ("Age of the oldest pending job, since its submit.", ()),
    "supervise_heartbeat_age_seconds": ("Longest time since a running job's lease was renewed.", ()),
    "supervise_progress_age_seconds": ("Longest time since a running job saved or reported something.", ()),
    "supervise_stage_age_seconds": ("Longest time that a running job of the task has been in its stage.", ("task",)),
    "supervise_stalled": ("Running jobs without progress for longer than their task allows.", ()),
    "supervise_parked": ("Parked jobs by the kind of their stop reason.", ("reason",)),
    "supervise_parked_age_seconds": ("How long the oldest of them has been parked.", ("reason",)),
    "supervise_parked_without_reason": ("Parked jobs that do not say why: more than 0 is a bug.", ()),
    "supervise_lost_leases": ("Attempts that were lost by jobs that have not ended.", ()),
    "supervise_refused_writes": ("Writes of lost attempts that were refused, of jobs that have not ended.", ()),
    "supervise_republished": ("Messages that are out and were sent more than once.", ()),
    "supervise_runnable": ("Jobs that a worker of the queue could take now.", ("queue",)),
    "supervise_runnable_age_seconds": ("How long the first of them has been due.", ("queue",)),
}
"""Name, help and labels. Each also has the label `namespace`. Gauges all: a row that goes takes its count along."""


class SupervisorCollector(Collector):
    """Gives the numbers of one app. Each scrape asks the database: six reads, bounded as `docs/operating.md` says."""

    def __init__(self, supervisor: Supervisor) -> None:
        self._supervisor = supervisor

    def describe(self) -> Sequence[GaugeMetricFamily]:
        """Names alone: to be registered, no database need be up."""
        return [_family(name) for name in METRICS]

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """The metrics. A database that is away is a metric, too, and no error of the scrape."""
        try:
            found = _samples(self._supervisor.stats())
        except (SuperviseError, DBAPIError) as error:
            logger.warning("supervise.metrics_failed", extra={"why": str(error)})
            found = {UP: [((), 0.0)]}
        for name, samples in found.items():
            family = _family(name)
            for labels, value in samples:
                family.add_metric((self._supervisor.door.namespace, *labels), value)
            yield family


def register(app: Celery, registry: CollectorRegistry = REGISTRY) -> SupervisorCollector:
    """Make `registry` give the numbers of `app`. Raises `ConfigError`."""
    collector = SupervisorCollector(OfApp.of(app))
    registry.register(collector)
    return collector


def _family(name: str) -> GaugeMetricFamily:
    text, labels = METRICS[name]
    return GaugeMetricFamily(name, text, labels=("namespace", *labels))


def _samples(now: Stats) -> Mapping[str, Sequence[Sample]]:
    tasks = {stage.task: NO_TIME for stage in now.stages}
    for stage in now.stages:
        tasks[stage.task] = max(tasks[stage.task], stage.longest)
    return {
        UP: [((), 1.0)],
        "supervise_jobs": [((str(state),), count) for state, count in now.jobs.items()],
        "supervise_oldest_pending_seconds": _age(now.oldest_pending),
        "supervise_heartbeat_age_seconds": _age(now.heartbeat_age),
        "supervise_progress_age_seconds": _age(now.progress_age),
        "supervise_stage_age_seconds": [((task,), longest.total_seconds()) for task, longest in tasks.items()],
        "supervise_stalled": [((), now.stalled)],
        "supervise_parked": [((one.reason,), one.jobs) for one in now.parked],
        "supervise_parked_age_seconds": [((one.reason,), one.oldest.total_seconds()) for one in now.parked],
        "supervise_parked_without_reason": [((), now.parked_without_reason)],
        "supervise_lost_leases": [((), now.lost_leases)],
        "supervise_refused_writes": [((), now.refused_writes)],
        "supervise_republished": [((), now.republished)],
        "supervise_runnable": [((one.queue,), one.runnable) for one in now.runnable],
        "supervise_runnable_age_seconds": [((one.queue,), one.oldest.total_seconds()) for one in now.runnable],
    }


def _age(age: timedelta | None) -> Sequence[Sample]:
    """Nothing that could be old has no age: 0, so that an alarm on it goes off."""
    return [((), 0.0 if age is None else age.total_seconds())]

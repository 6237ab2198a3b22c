"""Where the system may come to rest. The search asks whether it can get there by itself."""

from __future__ import annotations

from celery_supervise.lifecycle import USER_PAUSED, State

from ..context import Model
from ..machine import Settle, World


def quiescent(model: Model, world: World) -> bool:
    """Nothing is left to do: ended and told, or parked on a person, or not there at all."""
    job = world.job
    if job is None:
        return not any(message.ticket == 0 for message in world.messages)
    if job.terminal:
        shown = not model.scenario.results or world.backend == job.state.value
        return job.settle is Settle.DONE and shown
    waits = job.open_question is not None or job.reason == USER_PAUSED
    return job.state is State.PARKED and not job.ticket and waits

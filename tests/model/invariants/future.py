"""Where the system may come to rest. The search asks whether it can get there by itself."""

from __future__ import annotations

from celery_supervise.lifecycle import USER_PAUSED, State

from ..actions.versions import can_run
from ..context import Model
from ..machine import Settle, World


def quiescent(model: Model, world: World) -> bool:
    """Nothing is left to do: ended and told, parked on a person, held, without code that can run it, or not there."""
    job = world.job
    if job is None:
        return not any(message.ticket == 0 for message in world.messages)
    if job.terminal:
        shown = not model.scenario.results or world.backend == job.state.value
        return job.settle is Settle.DONE and shown
    if job.held and job.ticket and not job.released:
        return True
    shelved = (job.reason or "").startswith("incompatible_version:") and not can_run(model, world)
    waits = job.open_question is not None or job.reason == USER_PAUSED or shelved
    return job.state is State.PARKED and not job.ticket and waits

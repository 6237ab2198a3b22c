"""Whether an installation works, for a load balancer; its numbers, for Prometheus. Names nobody's jobs."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Final

from fastapi import APIRouter, Request, Response
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.concurrency import run_in_threadpool

from celery_supervise import queries
from celery_supervise.ailments import SWEEPS, is_late
from celery_supervise.errors import DatabaseUnavailable, NotMigrated

from .reading import Jobs, NoParameters
from .shapes import HealthShape

OK: Final = "ok"
DEGRADED: Final = "degraded"
DOWN: Final = "down"

router = APIRouter(tags=["operation"])


@router.get("/health", response_model=HealthShape, responses={503: {"model": HealthShape}})
async def health(service: Jobs, _: NoParameters, request: Request, response: Response) -> Any:
    """503 where jobs cannot be accepted, or nobody looks after them. Needs no login."""
    found: Mapping[str, str] = await run_in_threadpool(_checks, service, request.app.state.sweep_period)
    status = DOWN if found["database"] != OK else next((DEGRADED for said in found.values() if said != OK), OK)
    response.status_code = 200 if status == OK else 503
    return {"status": status, "checks": found}


def _checks(service: Any, period: timedelta) -> Mapping[str, str]:
    try:
        rows = service.door.all(queries.SWEEPS)
    except (DatabaseUnavailable, NotMigrated):
        return {"database": DOWN}
    in_time = {row["name"] for row in rows if not is_late(row, period)}
    return {"database": OK, "sweeps": OK if in_time >= set(SWEEPS) else DEGRADED}


@router.get("/metrics", response_class=Response, responses={200: {"content": {"text/plain": {}}}})
def metrics(_: NoParameters, request: Request) -> Response:
    """The numbers of the installation, read as they are asked for."""
    return Response(generate_latest(request.app.state.registry), media_type=CONTENT_TYPE_LATEST)

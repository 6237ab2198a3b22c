"""A worker whose main process has used the database before it forks, as a project does that reads at import."""

from __future__ import annotations

from celery_supervise import Supervisor
from tests.acceptance.serve import app

READ = len(Supervisor.of(app).jobs())

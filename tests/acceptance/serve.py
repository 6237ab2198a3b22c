"""What a worker of the acceptance tests runs: ``celery -A tests.acceptance.serve worker``."""

from __future__ import annotations

from tests.acceptance import faults
from tests.acceptance.project import Place, build

place = Place.given()
app = build(place)
app.set_current()
faults.install(place)

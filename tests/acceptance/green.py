"""What a worker with green threads and psycopg2 runs: as `serve`, with psycogreen's patch."""

from __future__ import annotations

from psycogreen.gevent import patch_psycopg

from tests.acceptance.serve import app

patch_psycopg()

__all__ = ["app"]

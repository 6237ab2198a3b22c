"""Acceptance: real workers (prefork), a real broker, real Postgres; every real side effect is counted."""

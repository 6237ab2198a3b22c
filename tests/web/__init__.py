"""Tests of the HTTP API: over a socket, with real Postgres."""

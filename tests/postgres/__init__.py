"""Tests of the store and the service on a real Postgres."""

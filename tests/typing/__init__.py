"""Checked by mypy, never run."""

"""The tests of celery-supervise: `python3 tests` runs them all (see __main__.py)."""

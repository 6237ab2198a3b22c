"""The project. Loads its Celery app, as Celery's documentation has it."""

from .celery import app as celery_app

__all__ = ["celery_app"]

"""The Celery app of a Django project, which the project loads with its settings, and our service in it."""

from __future__ import annotations

from celery import Celery
from celery.app import app_or_default

from celery_supervise.config import Settings
from celery_supervise.install import Supervisor
from celery_supervise.runtime import settings_of
from celery_supervise.supervisor import Supervisor as Service


def app() -> Celery:
    """The project's app: the current one, since its package makes no other."""
    found: Celery = app_or_default()
    return found


def settings() -> Settings:
    """Its `CELERY_SUPERVISE_…` settings. Raises `ConfigError`."""
    return settings_of(app())


def supervisor() -> Service:
    """The service. Raises `ConfigError`."""
    return Supervisor.of(app())

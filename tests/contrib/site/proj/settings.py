"""The project's settings: places come from the environment."""

from __future__ import annotations

import json
import os
from typing import Any
from urllib.parse import unquote, urlsplit

PLACE = json.loads(os.environ["SITE"])


def database(url: str) -> dict[str, Any]:
    """One of DATABASES."""
    parts = urlsplit(url)
    return {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": parts.path.lstrip("/"),
        "USER": parts.username,
        "PASSWORD": unquote(parts.password or ""),
        "HOST": parts.hostname,
        "PORT": parts.port,
        "OPTIONS": {"application_name": "site"},
    }


SECRET_KEY = "of-tests"
USE_TZ = PLACE["use_tz"]
TIME_ZONE = "Europe/Berlin"
ALLOWED_HOSTS = ["testserver"]
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
ROOT_URLCONF = "proj.urls"
DATABASES = {
    "default": database(PLACE["database"]),
    "empty": database(PLACE["empty"]),
    "light": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"},
}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.messages",
    "django.contrib.sessions",
    "celery_supervise.contrib.django",
    "proj",
]
MIDDLEWARE = [
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
]
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ]
        },
    }
]

CELERY_BROKER_URL = PLACE["broker"]
CELERY_RESULT_BACKEND = PLACE["backend"]
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
CELERY_WORKER_HIJACK_ROOT_LOGGER = False
CELERY_WORKER_REDIRECT_STDOUTS = False
CELERY_SUPERVISE_DATABASE = "default"
CELERY_SUPERVISE_GROUPS = "celery_supervise.contrib.django.authentication.groups_of"
CELERY_SUPERVISE_HEARTBEAT_SECONDS = 0.5
CELERY_SUPERVISE_SWEEP_SECONDS = 0.5

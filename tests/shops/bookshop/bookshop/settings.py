import os
from urllib.parse import urlsplit

_database = urlsplit(os.environ["SHOP_DATABASE"])

SECRET_KEY = "a shop that lives for one test"
DEBUG = False
ALLOWED_HOSTS = ["*"]
ROOT_URLCONF = "bookshop.urls"
WSGI_APPLICATION = "bookshop.wsgi.application"
USE_TZ = True
TIME_ZONE = "Europe/Berlin"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
INSTALLED_APPS = [
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "orders",
]
MIDDLEWARE = ["django.middleware.common.CommonMiddleware"]
EMAIL_BACKEND = "django.core.mail.backends.locmem.EmailBackend"
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": _database.path.lstrip("/"),
        "USER": _database.username,
        "PASSWORD": _database.password,
        "HOST": _database.hostname,
        "PORT": _database.port,
        "ATOMIC_REQUESTS": True,
    }
}

CELERY_BROKER_URL = os.environ.get("SHOP_BROKER", "memory://")
CELERY_RESULT_BACKEND = os.environ.get("SHOP_BACKEND", "cache+memory://")
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
CELERY_WORKER_HIJACK_ROOT_LOGGER = False

"""The migrations, installed as `celery_supervise.migrations`. Alembic loads them; nobody imports them."""

"""The library on real Celery apps."""

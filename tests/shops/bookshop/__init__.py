"""A Django project with ordinary Celery tasks and an ordinary test-suite. It knows nothing of this library."""

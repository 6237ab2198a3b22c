"""pytest-celery's documented API, on local processes. Run by tests/acceptance/test_pytest_celery.py."""

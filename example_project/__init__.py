"""A Celery project like a shop's, supervised: __main__.py says how to run it. Imports nothing."""

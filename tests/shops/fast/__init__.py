"""A web shop in FastAPI, asynchronous SQLAlchemy and Celery, with an ordinary test-suite. It knows nothing of us."""

"""A Django project, as small as one can be, and the tests that run in it."""

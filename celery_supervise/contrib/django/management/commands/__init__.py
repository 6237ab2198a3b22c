"""The commands of `manage.py`. One: `supervise`."""

"""A plugin of pytest: Django is set up before a test imports its models."""

from __future__ import annotations

import django

django.setup()

"""The tables, as data: columns, constraints, indexes and why. No statements, no decisions.

The migrations make them; a test holds the two together. No foreign key points at ``jobs``: each would take a
share lock on the hottest row of all, and prune would wait for it (protocol 9).
"""

from .questions import QUESTION_STATUSES
from .registry import DEFAULT_SCHEMA, VERSION_TABLE, metadata
from .runs import OUTCOMES

__all__ = ["DEFAULT_SCHEMA", "OUTCOMES", "QUESTION_STATUSES", "VERSION_TABLE", "metadata"]

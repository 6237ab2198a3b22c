"""An explicit-state model of the protocol, explored exhaustively: ``python -m tests.model``."""

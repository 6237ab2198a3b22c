"""The schema and its migrations: what they make, and that they make it whole or not at all."""

"""What the shops add for a task that asks: files that are copied into them, and tests of it. Not an own package."""

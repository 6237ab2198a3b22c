"""The revisions, oldest first. One that was released never changes."""

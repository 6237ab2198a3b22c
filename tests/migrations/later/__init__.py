"""A revision that comes after all of ours, as a later library brings it."""

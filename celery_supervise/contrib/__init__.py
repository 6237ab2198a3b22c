"""What fits the library to other frameworks. Nothing of the library imports it but by name."""

"""Whole fixture projects, run as a shop would run them."""

"""Tests of what fits the library to other frameworks. Each framework runs in processes of its own."""

"""Tests that need no database with our schema: pure code, and the tools that other tests stand on."""

"""Processes that belong together."""

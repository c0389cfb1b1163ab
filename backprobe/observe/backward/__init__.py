"""Backward calls: hooks on their nodes, and their records."""

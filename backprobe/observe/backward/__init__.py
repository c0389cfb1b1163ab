"""Backward calls: hooks on their nodes, and what the calls mean."""

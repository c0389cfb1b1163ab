"""Losses through whose targets or weights a gradient flows that was not meant to."""

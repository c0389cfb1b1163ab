"""Comparison of two recorded runs: alignment of their ops, and the first op that really differs."""

"""Presentation of runs: a trace becomes a list of report parts, and parts become text."""

"""A graph that is there, read into plain data."""

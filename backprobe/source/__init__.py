"""Whose line, whose module: frames of the user's code, where things were defined, outermost modules."""

"""The rule for a saved tensor that was modified in place before the backward needed it."""

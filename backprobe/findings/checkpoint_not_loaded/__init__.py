"""The rule for state dicts none of whose names the model has."""

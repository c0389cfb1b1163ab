"""Rules for parameters that get no gradient."""

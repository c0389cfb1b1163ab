"""The rule for parts of a parameter that never learn."""

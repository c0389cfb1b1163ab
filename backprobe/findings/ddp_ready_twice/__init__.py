"""The rule for a parameter that data-parallel training saw ready twice in one iteration."""

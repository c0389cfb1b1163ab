"""The rule for terms of a loss that have no graph."""

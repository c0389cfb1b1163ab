"""The rule for operations that broadcast the batch against itself on the way to a loss."""

"""The rule for optimizers that are made anew again and again over the same parameters."""

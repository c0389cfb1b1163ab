"""The rule for learning rates that are zero while training goes on."""

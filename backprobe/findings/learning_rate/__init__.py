"""Rules for learning rates that are zero, below zero, or raised until training diverges."""

"""Rules for learning rate schedulers that are not stepped, or do something else than was meant."""

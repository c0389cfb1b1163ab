"""The rule for replicas that should be equal on all ranks and are not."""

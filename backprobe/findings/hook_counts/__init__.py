"""The rule for hooks that pile up."""

"""Rule for parameters that every step leaves as they are, because the update is rounded away."""

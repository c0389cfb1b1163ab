"""Rule for gradient mode left off while the loss was computed."""

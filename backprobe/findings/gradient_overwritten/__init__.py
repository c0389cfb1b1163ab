"""Rule for gradients that a custom function or a hook changed in place."""

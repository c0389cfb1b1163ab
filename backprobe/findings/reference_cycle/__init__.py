"""Rule for parameters and gradients that keep each other alive."""

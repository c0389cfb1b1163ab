"""Rule for parameters whose gradients the script sets to zero, and that the optimizer moves all the same."""

"""Rule for operations of the forward that autograd refused."""

"""Rule for saved tensors that were modified without autograd noticing."""

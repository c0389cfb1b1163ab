"""Rule for ``.grad`` read from tensors that are not leaves."""

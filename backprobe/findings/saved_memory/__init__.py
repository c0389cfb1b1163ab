"""The ``memory`` check: the bytes that autograd saves for backward, by module, line, op and dtype."""

"""The autograd graph as plain data."""

"""Derivatives between any two tensors of a graph that already exists, and the norms of their Jacobian."""

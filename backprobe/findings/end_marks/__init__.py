"""The rule for tokens that end and pad rows, and are never learned."""

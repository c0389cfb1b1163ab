"""The rule for second derivatives that are zero because an activation is piecewise linear."""

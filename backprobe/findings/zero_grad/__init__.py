"""The rule for parameters whose gradient is exactly zero in every backward call, and the op that makes the zeros."""

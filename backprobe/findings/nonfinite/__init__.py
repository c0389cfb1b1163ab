"""Rules for NaN and Inf, in the forward and in the backward."""

"""Recorded ops calculated again in float64, from the tensors that were kept."""

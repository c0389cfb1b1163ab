"""Rule for ``--check divergence``: the first operation that differs from float64, or between two models."""

"""The rule for steps with gradients that still have the factor of a ``GradScaler``."""

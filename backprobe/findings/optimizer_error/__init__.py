"""Rule for calls of optimizers, schedulers and gradient scalers that torch refused."""

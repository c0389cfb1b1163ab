"""Rules for trainable tensors that ``parameters()`` does not list, and parameters that no optimizer holds."""

"""The rule for clipping that leaves the gradients which the optimizer uses as they are, or clips them to nothing."""

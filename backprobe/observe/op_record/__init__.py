"""Every op of chosen steps as torch's dispatcher runs it, forward and backward, with fingerprints of its tensors."""

"""Recording of every op in chosen steps, forward and backward, at the dispatcher level, with fingerprints of its
tensors.
"""

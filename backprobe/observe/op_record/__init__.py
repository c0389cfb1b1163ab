"""Records every op of chosen steps at the dispatcher level, with fingerprints of its tensors.

Both the forward and the backward are recorded.
"""

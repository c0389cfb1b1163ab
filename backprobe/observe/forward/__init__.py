"""Records of the forward pass: module calls, ops and their source lines, values, in-place writes, detach points."""

"""Rule for methods ``backward`` of modules, which autograd does not call."""

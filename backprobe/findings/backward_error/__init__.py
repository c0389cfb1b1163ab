"""The rule for a node that raised an exception: names the node and the forward line that created it."""

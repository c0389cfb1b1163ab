"""Rules for users' module backward hooks that never fire, see only part of the graph, or meet an in-place write."""

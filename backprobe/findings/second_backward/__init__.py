"""The rule for a backward call that reached a graph which an earlier backward had freed."""

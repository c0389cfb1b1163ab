"""The autograd graph as plain data: queries, comparison and drawings. Nothing in here imports torch."""

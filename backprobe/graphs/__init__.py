"""The autograd graph as plain data: read it, ask it, draw it. Nothing in here imports torch."""

"""Access to torch internals without a public API: walking and freeing graphs, entry points, measuring tensors."""

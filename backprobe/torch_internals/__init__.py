"""What torch does not say publicly: walking and freeing graphs, its entry points, measuring tensors."""

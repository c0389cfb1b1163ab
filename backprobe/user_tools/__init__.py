"""Tools that a script calls itself: values, derivatives, edits of gradients, saved tensors."""

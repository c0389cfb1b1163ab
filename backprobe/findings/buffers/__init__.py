"""Rules for buffers: values that are not finite, and statistics of frozen layers that move."""

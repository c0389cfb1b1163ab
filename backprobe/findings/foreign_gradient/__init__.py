"""Rule for gradients of another loss that an optimizer uses."""

"""Rule for gradients of an earlier step that are used again and again."""

"""Rule for models that stay in evaluation mode while they are trained."""

"""Rule for frozen parts of a model that are put back into training mode."""

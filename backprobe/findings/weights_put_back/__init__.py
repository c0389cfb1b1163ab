"""Rule for weights that are put back between steps, so that the training before is lost."""

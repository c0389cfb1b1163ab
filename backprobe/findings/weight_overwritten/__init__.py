"""Rule for weights that the script changes between two backward calls of a step and does not change back."""

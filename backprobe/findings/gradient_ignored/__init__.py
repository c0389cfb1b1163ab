"""Rule for custom functions whose backward ignores the gradients that it is given."""

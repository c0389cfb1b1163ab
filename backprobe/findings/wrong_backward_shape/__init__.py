"""The rule for a custom ``Function`` whose backward returned gradients of the wrong shape or number."""

"""Rule for state dicts that are loaded back although their tensors are the parameters themselves."""

"""Rule for assignments that should freeze parameters and do not."""

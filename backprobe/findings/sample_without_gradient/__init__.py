"""Rule for samples that a loss uses, and that carry no gradient to their distribution."""

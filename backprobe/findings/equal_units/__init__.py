"""Rule for layers whose units are copies of one another and get equal gradients."""

"""Rule for variational autoencoders whose codes carry nothing."""

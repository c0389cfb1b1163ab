"""Rule for terms of a loss that subtract a value from itself and give no gradient."""

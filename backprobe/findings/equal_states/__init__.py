"""Rule for bootstrapped targets that are computed from the same states as the prediction."""

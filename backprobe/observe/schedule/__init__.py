"""Recording schedule: where steps end, how closely each step is recorded, and what recording costs."""

"""Change gradients on their way: by name, at parameters, module inputs and outputs, and graph nodes."""

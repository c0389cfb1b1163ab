"""Static analysis of the user's source code: frames, definitions, assignments, control flow, outermost modules."""

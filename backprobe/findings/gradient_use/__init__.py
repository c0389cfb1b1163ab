"""Rules for gradients that an optimizer uses more than once or never: missing or misplaced calls of a training loop."""

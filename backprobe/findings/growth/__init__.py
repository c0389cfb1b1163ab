"""Rules for gradients that shrink or grow layer by layer, or at one operation."""

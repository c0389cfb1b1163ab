"""Statistics by layer, in some steps: parameters, gradients, updates, optimizers, activations, attention, routers."""

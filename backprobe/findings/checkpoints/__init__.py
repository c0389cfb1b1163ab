"""Rules for checkpointed regions: recomputations that differ, gradients that differ, state updated twice."""

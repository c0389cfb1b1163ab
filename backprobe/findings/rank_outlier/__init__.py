"""The rule for one rank that is far from the others: in its gradients before reduction, or in its pace."""

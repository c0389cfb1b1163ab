"""What autograd keeps for backward: the ledger, and policies for where it is kept."""

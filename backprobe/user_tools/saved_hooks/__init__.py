"""Saved-tensor hooks: the ledger of what autograd saves for backward, and policies for where to store it."""

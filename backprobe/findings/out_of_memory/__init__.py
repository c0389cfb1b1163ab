"""The rule for an allocation that failed in a backward call: which forward lines held the memory."""

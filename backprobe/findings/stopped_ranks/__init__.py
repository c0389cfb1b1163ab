"""Rules for runs of several processes: failed ranks, and ranks that wait for a missing one."""

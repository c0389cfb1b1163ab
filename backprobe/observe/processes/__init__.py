"""Multi-process runs: observing child processes and ranks, and collecting their results in one run folder."""

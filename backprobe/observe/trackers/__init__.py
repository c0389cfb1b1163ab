"""Who looks for one thing: one file each."""

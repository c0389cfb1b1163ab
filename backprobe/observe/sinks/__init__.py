"""Where what was seen goes: memory, a run folder."""

"""Sinks: consumers of the session's records, such as memory, a run folder, plugins and experiment trackers."""

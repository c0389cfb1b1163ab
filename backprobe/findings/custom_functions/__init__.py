"""Rules for custom functions: against finite differences, and with state that a second call overwrites."""

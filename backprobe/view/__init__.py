"""What a person sees: a trace becomes a list of parts, and parts become text."""

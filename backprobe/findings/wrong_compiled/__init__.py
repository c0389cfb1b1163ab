"""Rule for ``--check compiled``: compiled regions against their operations."""

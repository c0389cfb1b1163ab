"""Rules for ``--check functions``: custom functions against finite differences."""
